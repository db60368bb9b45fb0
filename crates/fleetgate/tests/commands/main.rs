//! Every command of the documents is run as it is printed, and prints what they say. CONTRIBUTING.md has the rules for writers.
#![allow(clippy::unwrap_used)] // A test that cannot go on panics.

mod page;
mod playbooks;
mod pods;
mod printed;
mod shell;
mod surroundings;

use std::fs;
use std::path::{Path, PathBuf};

use page::{Page, Step};
use shell::Shell;
use surroundings::Surroundings;
use testbed::Machine;

/// The addresses that documents may use, all of them this machine's.
const NETWORKS: [&str; 6] =
    ["192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "10.0.0.0/8", "172.16.0.0/12", "2001:db8::/32"];

/// The names, as those networks have no DNS.
const HOSTS: &str = "\
127.0.0.1 hub.example.net gw-1.hub.example gw-2.hub.example egress.hub.example
10.10.0.20 hook.shop.svc.cluster.local hook.shop.svc
";

/// Pages with a test of their own, so that they run beside each other and can be run alone. All others are found by
/// [`every_other_page`].
macro_rules! pages {
    ($($test:ident: $page:literal,)*) => {
        const PAGES: &[&str] = &[$($page),*];

        $(#[test]
        fn $test() {
            follow(stringify!($test), &[$page.into()]);
        })*
    };
}

pages! {
    readme: "README.md",
    quick_start: "docs/quick-start.md",
    api_servers: "docs/one-door-for-api-servers.md",
    nodes: "docs/names-that-follow-nodes.md",
    names_and_addresses: "docs/tenants-names-and-addresses.md",
    many_clusters: "docs/one-entry-for-many-clusters.md",
    into_clusters: "docs/into-clusters.md",
    operations: "docs/operations.md",
    install: "docs/install.md",
    hub: "docs/hub.md",
    agents: "docs/agents.md",
    publishing: "docs/publishing.md",
    control_plane_dns: "docs/control-plane-dns.md",
    overflow: "docs/overflow.md",
    egress: "docs/egress.md",
    withdrawals: "docs/withdrawals.md",
    crd_versions: "docs/crd-versions.md",
}

#[test]
fn every_other_page() {
    let others = documents().into_iter().filter(|page| !PAGES.iter().any(|own| Path::new(own) == page));
    let others: Vec<PathBuf> = others.filter(|page| !read(page).steps.is_empty()).collect();
    follow("every_other_page", &others);
}

/// A block that cannot be run says why, and there are few.
#[test]
fn what_is_not_run_is_short_and_has_reasons() {
    let mut untested = Vec::new();
    for document in documents() {
        let page = read(&document);
        assert_eq!(
            page.unmarked,
            [0; 0],
            "{}: blocks at these lines have commands and are not `console`",
            document.display()
        );
        for block in page.untested {
            assert!(block.reason.len() > 10, "{}:{}: {}", document.display(), block.line, block.reason);
            println!("{}:{}: {}: {:?}", document.display(), block.line, block.reason, block.commands);
            untested.extend(block.commands);
        }
    }
    assert!(untested.len() <= 10, "{untested:#?}");
}

/// What `make` does here is what the Makefile says, but for the build.
#[test]
fn make_run_builds_and_starts_the_demo() {
    let makefile = fs::read_to_string(repository().join("Makefile")).unwrap();
    let recipe = makefile.lines().skip_while(|line| !line.starts_with("run:")).skip(1);
    let recipe: Vec<&str> = recipe.take_while(|line| line.starts_with('\t')).map(str::trim).collect();
    assert_eq!(recipe, ["cargo build --release --package fleetgate", "target/release/fleetgate demo"]);
}

/// What the demo itself tells people to type.
#[test]
fn the_demo_prints_commands_that_work() {
    if !enter("the_demo_prints_commands_that_work") {
        return;
    }
    let mut shell = Shell::new(&repository());
    shell.must("make run");
    let printed = shell.log_of_last();
    let commands: Vec<&str> = printed.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    assert_eq!(commands.len(), 5, "{printed}");
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    for command in commands {
        shell.must(&format!("test -n \"$({command})\""));
        // As the README has it, where it is shorter because the address is the usual one.
        let short = command.replace("curl ", "curl -s ").replace(" --admin 127.0.0.1:9630", "");
        assert!(readme.contains(&format!("\n$ {short}\n")), "the README has no {short:?}");
    }
}

/// Follows pages from top to bottom, on a machine of their own, each with nothing left of the one before.
fn follow(test: &str, pages: &[PathBuf]) {
    if !enter(test) {
        return;
    }
    let repository = repository();
    let mut wrong = Vec::new();
    for document in pages {
        let begun = std::time::Instant::now();
        let Some(complaints) = follow_page(&repository, document) else { continue };
        for (line, complaint) in complaints {
            wrong.push(format!("{}:{line}: {complaint}\n", document.display()));
        }
        println!("{}: {:?}", document.display(), begun.elapsed());
    }
    assert!(wrong.is_empty(), "the documents say otherwise:\n\n{}", wrong.join("\n"));
}

/// As [`testbed::own_machine`], on one that has what documents speak of.
fn enter(test: &str) -> bool {
    let program = Path::new(env!("CARGO_BIN_EXE_fleetgate"));
    let target = program.parent().and_then(Path::parent).unwrap();
    testbed::own_machine(test, &Machine { networks: &NETWORKS, hosts: HOSTS, kept: &[&repository(), target] })
}

/// What is wrong, by line. `None` where this machine lacks something, which has been said.
fn follow_page(repository: &Path, document: &Path) -> Option<Vec<(usize, String)>> {
    let page = read(document);
    let mut shell = Shell::new(repository);
    let mut surroundings = Surroundings::default();
    // Most pages speak of a fleet that is served.
    if !matches!(page.steps.iter().find(|step| !matches!(step, Step::Write { .. })), Some(Step::Surroundings { .. })) {
        surroundings.set(&mut shell, "demo")?;
    }
    let mut wrong = Vec::new();
    for step in &page.steps {
        match step {
            Step::Write { path, text } => shell.write(path, text),
            Step::Surroundings { name, .. } => surroundings.set(&mut shell, name)?,
            Step::Interrupt { line } => wrong.extend(shell.interrupt().err().map(|complaint| (*line, complaint))),
            Step::Run(command) => {
                if let Err(complaint) = shell.run(command) {
                    let complaint = format!("$ {}\n{complaint}", command.text);
                    // At once too: what follows may fail worse because of it.
                    eprintln!("{}:{}: {complaint}", document.display(), command.line);
                    wrong.push((command.line, complaint));
                }
                surroundings.after(&shell, &command.text);
            }
        }
    }
    wrong.extend(shell.check_running().err().map(|complaint| (0, format!("something ended: {complaint}"))));
    Some(wrong)
}

fn read(document: &Path) -> Page {
    Page::parse(&fs::read_to_string(repository().join(document)).unwrap())
}

/// Every page of the repository that a person reads.
fn documents() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        ["README.md", "CONTRIBUTING.md", "bench/README.md", "examples/README.md"].map(PathBuf::from).into();
    let mut folders = vec![PathBuf::from("docs"), PathBuf::from("deploy")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(repository().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}
