//! Master files as entries of words (RFC 1035 5.1): comments, parentheses and quotes are understood here and nowhere else.

use crate::Mistake;

/// Walks through a file, entry by entry and word by word.
pub(super) struct Words<'a> {
    octets: &'a [u8],
    at: usize,
    line: usize,
    line_start: usize,
    /// How many parentheses are open, and where the first of them stands.
    depth: usize,
    opened: Place,
    /// Whether the entry is over.
    ended: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Word<'a> {
    /// As it is written, without its quotes.
    pub(super) text: &'a [u8],
    pub(super) quoted: bool,
    /// Whether anything separates it from what stands before it. At the start of an entry: whether it is indented.
    pub(super) spaced: bool,
    pub(super) place: Place,
}

/// Both counted from 1.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// What ends a word, and the backslash.
const IS_SPECIAL: [bool; 256] = {
    let mut table = [false; 256];
    let mut rest: &[u8] = b" \t\r\n();\"\\";
    while let [octet, behind @ ..] = rest {
        table[*octet as usize] = true;
        rest = behind;
    }
    table
};

impl Place {
    pub(super) fn mistake(self, reason: impl Into<String>) -> Mistake {
        Mistake { line: self.line, column: self.column, reason: reason.into() }
    }
}

impl<'a> Words<'a> {
    pub(super) fn of(octets: &'a [u8]) -> Self {
        // What editors on Windows begin a file with.
        let octets = octets.strip_prefix(b"\xef\xbb\xbf").unwrap_or(octets);
        Self { octets, at: 0, line: 1, line_start: 0, depth: 0, opened: Place::default(), ended: false }
    }

    /// The first word of the next entry; nothing at the end of the file.
    pub(super) fn first(&mut self) -> Result<Option<Word<'a>>, Mistake> {
        while self.at < self.octets.len() {
            self.ended = false;
            if let Some(word) = self.next()? {
                return Ok(Some(word));
            }
        }
        Ok(None)
    }

    /// The next word of this entry; nothing at its end, however often one asks.
    pub(super) fn next(&mut self) -> Result<Option<Word<'a>>, Mistake> {
        if self.ended {
            return Ok(None);
        }
        let mut spaced = false;
        while let Some(octet) = self.octets.get(self.at) {
            match octet {
                b'"' => return self.quoted(spaced).map(Some),
                b';' => self.skip_comment(),
                b'\n' => {
                    self.at += 1;
                    self.line += 1;
                    self.line_start = self.at;
                    if self.depth == 0 {
                        self.ended = true;
                        return Ok(None);
                    }
                }
                b'(' => {
                    if self.depth == 0 {
                        self.opened = self.place();
                    }
                    self.depth += 1;
                    self.at += 1;
                }
                b')' => {
                    self.depth =
                        self.depth.checked_sub(1).ok_or_else(|| self.place().mistake("`)` without its `(`"))?;
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' => self.at += 1,
                _ => return self.plain(spaced).map(Some),
            }
            spaced = true;
        }
        if self.depth > 0 {
            return Err(self.opened.mistake("`(` without its `)`"));
        }
        Ok(None)
    }

    /// Where the next octet stands.
    pub(super) fn place(&self) -> Place {
        Place { line: self.line, column: self.at - self.line_start + 1 }
    }

    fn skip_comment(&mut self) {
        let rest = &self.octets[self.at..];
        self.at += rest.iter().position(|octet| *octet == b'\n').unwrap_or(rest.len());
    }

    fn plain(&mut self, spaced: bool) -> Result<Word<'a>, Mistake> {
        let (start, place) = (self.at, self.place());
        loop {
            let rest = &self.octets[self.at..];
            self.at += rest.iter().position(|octet| IS_SPECIAL[usize::from(*octet)]).unwrap_or(rest.len());
            if self.octets.get(self.at) != Some(&b'\\') {
                break;
            }
            self.skip_escape()?;
        }
        Ok(Word { text: &self.octets[start..self.at], quoted: false, spaced, place })
    }

    fn quoted(&mut self, spaced: bool) -> Result<Word<'a>, Mistake> {
        let place = self.place();
        self.at += 1;
        let start = self.at;
        loop {
            match self.octets.get(self.at) {
                Some(b'"') => break,
                Some(b'\\') => self.skip_escape()?,
                // Allowed by the letter of RFC 1035, but what follows a forgotten quote would be swallowed silently.
                Some(b'\n') | None => {
                    return Err(place.mistake("the quote is not closed on its line; a line feed inside is `\\010`"));
                }
                Some(_) => self.at += 1,
            }
        }
        let text = &self.octets[start..self.at];
        self.at += 1;
        Ok(Word { text, quoted: true, spaced, place })
    }

    fn skip_escape(&mut self) -> Result<(), Mistake> {
        match self.octets.get(self.at + 1) {
            Some(b'\n') | None => Err(self.place().mistake("the line ends in the middle of an escape")),
            Some(_) => {
                self.at += 2;
                Ok(())
            }
        }
    }
}

/// One octet of a word, and whether it was escaped.
#[derive(Debug, Clone, Copy)]
pub(super) struct Symbol {
    pub(super) octet: u8,
    pub(super) escaped: bool,
}

impl<'a> Word<'a> {
    pub(super) fn mistake(&self, reason: impl Into<String>) -> Mistake {
        self.place.mistake(reason)
    }

    /// For messages.
    pub(super) fn shown(&self) -> String {
        // Enough to recognise it by.
        let start = &self.text[..self.text.len().min(64)];
        format!("`{}`", start.escape_ascii())
    }

    /// Whether it is this very word, in any case.
    pub(super) fn is(&self, text: &str) -> bool {
        !self.quoted && self.text.eq_ignore_ascii_case(text.as_bytes())
    }

    pub(super) fn as_str(&self) -> Option<&'a str> {
        std::str::from_utf8(self.text).ok()
    }

    /// Its octets with the escapes undone.
    pub(super) fn symbols(self) -> impl Iterator<Item = Result<Symbol, Mistake>> + use<'a> {
        let mut rest = self.text;
        std::iter::from_fn(move || {
            let (&octet, behind) = rest.split_first()?;
            rest = behind;
            if octet != b'\\' {
                return Some(Ok(Symbol { octet, escaped: false }));
            }
            let (octet, behind) = match *behind {
                [hundreds @ b'0'..=b'9', ref digits @ ..] => match *digits {
                    [tens @ b'0'..=b'9', ones @ b'0'..=b'9', ref behind @ ..] => {
                        let digits = [hundreds, tens, ones].map(|digit| u16::from(digit - b'0'));
                        (u8::try_from(digits[0] * 100 + digits[1] * 10 + digits[2]).ok(), behind)
                    }
                    _ => (None, digits),
                },
                [octet, ref behind @ ..] => (Some(octet), behind),
                [] => (None, behind),
            };
            rest = behind;
            let symbol = octet.map(|octet| Symbol { octet, escaped: true });
            Some(symbol.ok_or_else(|| {
                self.mistake(format!(
                    "{}: `\\` is followed by three digits up to 255, or by one other character",
                    self.shown()
                ))
            }))
        })
    }
}
