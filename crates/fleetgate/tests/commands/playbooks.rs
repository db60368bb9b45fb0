//! Whoever is woken by a refusal that is ours or a backend's finds it in `docs/operations.md`.

use std::collections::BTreeSet;
use std::fs;

use crate::repository;

/// Each with the function that names the code.
const SOURCES: [(&str, &str); 5] = [
    ("crates/model/src/inside.rs", "fn code("),
    ("crates/gateway/src/refusal.rs", "fn code("),
    ("crates/web/src/refusal.rs", "fn code("),
    ("crates/egress/src/refusal.rs", "fn label("),
    ("crates/tunnel/src/refused.rs", "fn code("),
];

#[test]
fn every_refusal_of_ours_or_a_backends_has_a_playbook() {
    let page = fs::read_to_string(repository().join("docs/operations.md")).unwrap();
    let playbooks = page.split("\n## By refusal\n").nth(1).unwrap();
    let mut documented = BTreeSet::new();
    for playbook in playbooks.split("\n### ").skip(1) {
        let (codes, text) = playbook.split_once('\n').unwrap();
        for part in ["**Means**", "**Whose move**", "**Do**"] {
            assert!(text.contains(part), "{codes} has no {part}");
        }
        documented.extend(codes.split(", ").map(str::to_owned));
    }
    let mut wanted = BTreeSet::new();
    for (source, names) in SOURCES {
        let text = fs::read_to_string(repository().join(source)).unwrap();
        let codes: Vec<(String, String)> = arms(&text, names);
        let before = wanted.len();
        for (variant, blame) in arms(&text, "fn blame(") {
            if blame.contains("Blame::Us") || blame.contains("Blame::Backend") {
                let code = codes.iter().find(|(name, _)| *name == variant);
                let (_, code) = code.unwrap_or_else(|| panic!("{source}: {variant} has no code"));
                wanted.insert(code.trim_matches('"').to_owned());
            }
        }
        assert!(wanted.len() > before || source.contains("tunnel"), "{source} blames nobody");
    }
    assert_eq!(documented, wanted, "docs/operations.md has playbooks for other codes than there are");
}

/// Variants with what a `match` on them gives, of a function that is one.
fn arms(text: &str, function: &str) -> Vec<(String, String)> {
    let body = text.split(function).nth(1).unwrap().split("\n    }\n").next().unwrap();
    let body = body.split_once("match self {").unwrap().1;
    let mut arms = Vec::new();
    let mut pending = Vec::new();
    for line in body.lines() {
        let (pattern, value) = line.split_once("=>").map_or((line, None), |(before, after)| (before, Some(after)));
        let names = pattern.split("Self::").skip(1);
        let name = |rest: &str| rest.chars().take_while(char::is_ascii_alphanumeric).collect::<String>();
        pending.extend(names.map(name));
        if let Some(value) = value {
            let value = value.trim().trim_end_matches(',').to_owned();
            arms.extend(pending.drain(..).map(|variant| (variant, value.clone())));
        }
    }
    arms
}
