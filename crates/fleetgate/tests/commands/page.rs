//! A page of Markdown as a reader follows it: files to write and commands to type, in their order.

/// One thing that a reader does.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A block with `file: PATH` behind the language.
    Write {
        path: String,
        text: String,
    },
    /// A block with `with: NAME`: what has to be there from here on.
    Surroundings {
        line: usize,
        name: String,
    },
    Run(Command),
    /// A line `^C`: end what was started last.
    Interrupt {
        line: usize,
    },
}

/// A line behind `$ `, and what is printed below it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Command {
    /// Of the page, counted from 1.
    pub(crate) line: usize,
    pub(crate) text: String,
    pub(crate) printed: Vec<String>,
}

/// A block that cannot be run in a test.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Untested {
    pub(crate) line: usize,
    pub(crate) reason: String,
    pub(crate) commands: Vec<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) steps: Vec<Step>,
    pub(crate) untested: Vec<Untested>,
    /// Lines of blocks that hold commands and do not say so.
    pub(crate) unmarked: Vec<usize>,
}

impl Page {
    pub(crate) fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line));
        while let Some((number, line)) = lines.next() {
            let Some(info) = line.trim_start().strip_prefix("```") else { continue };
            let indent = line.len() - line.trim_start().len();
            let content = lines.by_ref().take_while(|(_, line)| line.trim() != "```");
            // A block in a list is indented as the list is.
            let content: Vec<_> = content.map(|(number, line)| (number, line.get(indent..).unwrap_or(""))).collect();
            page.take_block(number, info.trim(), &content);
        }
        page
    }

    fn take_block(&mut self, number: usize, info: &str, content: &[(usize, &str)]) {
        let (language, remark) = info.split_once(' ').unwrap_or((info, ""));
        if let Some(path) = remark.strip_prefix("file: ") {
            let text = content.iter().flat_map(|(_, line)| [*line, "\n"]).collect();
            self.steps.push(Step::Write { path: path.to_owned(), text });
        } else if language != "console" {
            let is_command = |(_, line): &(usize, &str)| line.starts_with("$ ");
            if ["sh", "bash", "shell"].contains(&language) || content.iter().any(is_command) {
                self.unmarked.push(number);
            }
        } else if let Some(reason) = remark.strip_prefix("untested: ") {
            let commands = steps(content).into_iter().filter_map(|step| match step {
                Step::Run(command) => Some(command.text),
                _ => None,
            });
            self.untested.push(Untested { line: number, reason: reason.to_owned(), commands: commands.collect() });
        } else {
            match remark.strip_prefix("with: ") {
                Some(name) => self.steps.push(Step::Surroundings { line: number, name: name.to_owned() }),
                None if remark.is_empty() => {}
                None => self.unmarked.push(number),
            }
            self.steps.extend(steps(content));
        }
    }
}

fn steps(content: &[(usize, &str)]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut lines = content.iter().copied();
    while let Some((line, text)) = lines.next() {
        if let Some(command) = text.strip_prefix("$ ") {
            let mut command = command.to_owned();
            // What is a command's last line decides whether another one follows.
            while command.ends_with('\\')
                && let Some((_, next)) = lines.next()
            {
                command = format!("{command}\n{next}");
            }
            if let Some(end) = here_document(&command) {
                for (_, next) in lines.by_ref() {
                    command = format!("{command}\n{next}");
                    if next == end {
                        break;
                    }
                }
            }
            steps.push(Step::Run(Command { line, text: command, printed: Vec::new() }));
        } else if text == "^C" {
            steps.push(Step::Interrupt { line });
        } else if let Some(Step::Run(command)) = steps.last_mut() {
            command.printed.push(text.to_owned());
        }
    }
    for step in &mut steps {
        // An empty line between two commands is for the eye.
        if let Step::Run(command) = step {
            while command.printed.last().is_some_and(String::is_empty) {
                command.printed.pop();
            }
        }
    }
    steps
}

/// The line that ends `<<EOF`.
fn here_document(command: &str) -> Option<String> {
    let (_, word) = command.split_once("<<")?;
    let word = word.split_whitespace().next()?;
    Some(word.trim_matches(['\'', '"']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_in_order() {
        let text = "\
Prose with `$ nothing`.

```yaml file: fleet/a.yaml
kind: Zone
```

- In a list:

  ```console with: demo
  $ dig +short \\
      api
  192.0.2.1
  …

  $ cat > x <<EOF
  $ not a command
  EOF
  ^C
  ```

```console untested: it needs the moon
$ make moon
```
```sh
ls
```
";
        let page = Page::parse(text);
        let command = |line, text: &str, printed: &[&str]| {
            let printed = printed.iter().map(|&line| line.to_owned()).collect();
            Step::Run(Command { line, text: text.to_owned(), printed })
        };
        assert_eq!(
            page.steps,
            [
                Step::Write { path: "fleet/a.yaml".into(), text: "kind: Zone\n".into() },
                Step::Surroundings { line: 9, name: "demo".into() },
                command(10, "dig +short \\\n    api", &["192.0.2.1", "…"]),
                command(15, "cat > x <<EOF\n$ not a command\nEOF", &[]),
                Step::Interrupt { line: 18 },
            ]
        );
        assert_eq!(page.untested[0].commands, ["make moon"]);
        assert_eq!((page.untested[0].reason.as_str(), page.unmarked), ("it needs the moon", vec![24]));
    }
}
