//! Why there is no stream.

use model::Blame;

/// Of a text that came over a link, in characters: more is no reason.
const LONGEST_REASON: usize = 300;

/// Nothing in these texts is another tenant's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("no agent of the cluster is linked; does `fleetgate agent tunnel` run there?")]
    NoLink,
    #[error("the target is not allowed: {0}")]
    Forbidden(String),
    #[error("the target cannot be used: {0}")]
    Malformed(String),
    #[error("the name is not known in the cluster: {0}")]
    UnknownName(String),
    #[error("the target cannot be reached: {0}")]
    Unreachable(String),
    #[error("the target did not answer in time")]
    TimedOut,
    #[error("the link was lost before the target answered")]
    LinkLost,
    #[error("there are too many streams or dials at once")]
    TooMany,
    #[error("the agent's answer cannot be used: {0}")]
    Garbled(String),
}

impl Refused {
    /// Fixed words: metric label, log field, the header `fleetgate-refusal`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoLink => "NoLink",
            Self::Forbidden(_) => "TargetForbidden",
            Self::Malformed(_) => "TargetMalformed",
            Self::UnknownName(_) => "UnknownName",
            Self::Unreachable(_) => "Unreachable",
            Self::TimedOut => "DialTimeout",
            Self::LinkLost => "LinkLost",
            Self::TooMany => "TooManyStreams",
            Self::Garbled(_) => "GarbledAnswer",
        }
    }

    pub fn blame(&self) -> Blame {
        match self {
            Self::Forbidden(_) | Self::Malformed(_) => Blame::Client,
            Self::NoLink
            | Self::UnknownName(_)
            | Self::Unreachable(_)
            | Self::TimedOut
            | Self::LinkLost
            | Self::Garbled(_) => Blame::Backend,
            Self::TooMany => Blame::Us,
        }
    }

    /// As HTTP says it.
    pub fn status(&self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::Forbidden(_) => 403,
            Self::NoLink | Self::UnknownName(_) | Self::Unreachable(_) | Self::LinkLost | Self::Garbled(_) => 502,
            Self::TooMany => 503,
            Self::TimedOut => 504,
        }
    }

    /// Whether another link might do better: this one's agent did not speak of the target.
    pub fn is_of_the_link(&self) -> bool {
        matches!(self, Self::NoLink | Self::LinkLost | Self::TooMany | Self::Garbled(_))
    }

    /// What the other end said, by its code; it may be newer than we are.
    pub(crate) fn heard(status: u16, code: Option<&str>, reason: &str) -> Self {
        let reason = || plain(reason);
        match (code, status) {
            (Some("NoLink"), _) => Self::NoLink,
            (Some("LinkLost"), _) => Self::LinkLost,
            (Some("UnknownName"), _) => Self::UnknownName(reason()),
            (Some("TargetForbidden"), _) | (_, 403) => Self::Forbidden(reason()),
            (Some("TargetMalformed"), _) | (_, 400) => Self::Malformed(reason()),
            (Some("Unreachable"), _) | (_, 502) => Self::Unreachable(reason()),
            (Some("DialTimeout"), _) | (_, 504) => Self::TimedOut,
            (Some("TooManyStreams"), _) | (_, 503) => Self::TooMany,
            _ => Self::Garbled(format!("it answered {status}")),
        }
    }

    /// Without what the variant says anyway, for the body of an answer.
    pub(crate) fn detail(&self) -> &str {
        match self {
            Self::Forbidden(text)
            | Self::Malformed(text)
            | Self::UnknownName(text)
            | Self::Unreachable(text)
            | Self::Garbled(text) => text,
            Self::NoLink | Self::TimedOut | Self::LinkLost | Self::TooMany => "",
        }
    }
}

/// A text from the network, fit for a line of a log.
pub(crate) fn plain(text: &str) -> String {
    text.chars().take(LONGEST_REASON).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_heard_as_it_was_said() {
        let all = [
            Refused::NoLink,
            Refused::Forbidden("why".into()),
            Refused::Malformed("why".into()),
            Refused::UnknownName("why".into()),
            Refused::Unreachable("why".into()),
            Refused::TimedOut,
            Refused::LinkLost,
            Refused::TooMany,
        ];
        for refused in all {
            assert_eq!(Refused::heard(refused.status(), Some(refused.code()), refused.detail()), refused);
        }
        assert_eq!(Refused::heard(403, Some("Newer"), "a\nreason"), Refused::Forbidden("a reason".into()));
        assert_eq!(Refused::heard(418, None, "").code(), "GarbledAnswer");
        assert_eq!(Refused::heard(502, None, &"x".repeat(1000)).detail().len(), LONGEST_REASON);
    }
}
