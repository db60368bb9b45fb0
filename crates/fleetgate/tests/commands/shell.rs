//! The shell of somebody who follows a page.
//!
//! Each command is run by bash, in one folder and with one set of exported variables. Commands that last are started beside it,
//! as in another shell, and the reader goes on when they say that they are ready.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use testbed::{Process, WorkDir};

use crate::page::Command;
use crate::printed;

/// Long enough for a loaded machine: reached only by a test that fails.
const PATIENCE: Duration = Duration::from_mins(1);
/// Once a page has failed nobody waits long for the rest, which often fails because of the first.
const LITTLE_PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);

/// What lasts, by its first words.
const LASTING: [&str; 12] = [
    "make run",
    "fleetgate serve",
    "fleetgate demo",
    "fleetgate controller",
    "fleetgate gateway",
    "fleetgate dns --",
    "fleetgate agent",
    "fleetgate egress proxy",
    "fleetgate egress sidecar --listen",
    "external-dns --provider=webhook",
    "openssl s_server",
    "python3 -m http.server",
];

/// What changes nothing, or nothing when it fails: it is asked again until it has the answer, as the effect of the command before
/// may take a moment.
const ASKED_AGAIN: [&str; 14] = [
    "dig ",
    "curl ",
    "kubectl get ",
    "kubectl describe ",
    "kubectl wait ",
    "fleetgate get ",
    "fleetgate explain ",
    "fleetgate check ",
    "fleetgate dns config ",
    "fleetgate credential list",
    "fleetgate credential issue ",
    "fleetgate egress credential ",
    "fleetgate release ",
    "external-dns --once ",
];

/// The flags by which a command that serves listens.
const DOORS: [&str; 8] = ["--dns", "--apiserver", "--sni", "--http", "--https", "--agents", "--egress", "--admin"];

pub(crate) struct Shell {
    folder: WorkDir,
    running: Vec<Running>,
    failed: bool,
}

struct Running {
    text: String,
    process: Process,
}

impl Shell {
    /// In an empty folder that has the parts of the repository that pages speak of.
    pub(crate) fn new(repository: &Path) -> Self {
        let folder = WorkDir::create().unwrap();
        let shell = Self { folder, running: Vec::new(), failed: false };
        for part in ["deploy", "examples"] {
            copy(&repository.join(part), &shell.path(part));
        }
        for made in ["target/release", ".shell/bin", ".shell/home"] {
            fs::create_dir_all(shell.path(made)).unwrap();
        }
        let program = env!("CARGO_BIN_EXE_fleetgate");
        // Where a reader who built it has it, and where one who installed it has.
        for place in ["target/release/fleetgate", ".shell/bin/fleetgate"] {
            symlink(program, shell.path(place)).unwrap();
        }
        // The recipe without the build: a test compares the two.
        shell.install("make", "#!/bin/sh\n[ \"$*\" = run ] || exit 2\nexec target/release/fleetgate demo\n");
        fs::write(shell.path(".shell/exports"), "").unwrap();
        fs::write(shell.path(".shell/folder"), shell.folder.path().to_str().unwrap()).unwrap();
        shell
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A program of this shell's own, before all others of the name.
    pub(crate) fn install(&self, name: &str, script: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.path(".shell/bin").join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Under this name, before all others.
    pub(crate) fn link(&self, name: &str, program: &Path) {
        let link = self.path(".shell/bin").join(name);
        // A page may have other surroundings that had it too.
        let _ = fs::remove_file(&link);
        symlink(program, link).unwrap();
    }

    pub(crate) fn export(&self, name: &str, value: &str) {
        let exports = fs::read_to_string(self.path(".shell/exports")).unwrap();
        fs::write(self.path(".shell/exports"), format!("{exports}export {name}='{value}'\n")).unwrap();
    }

    /// What is wrong with it.
    pub(crate) fn run(&mut self, command: &Command) -> Result<(), String> {
        let outcome = if lasts(&command.text) { self.start(command) } else { self.run_to_end(command) };
        self.failed |= outcome.is_err();
        outcome
    }

    /// As [`Shell::run`], for what the surroundings need.
    pub(crate) fn must(&mut self, text: &str) {
        let command = Command { line: 0, text: text.to_owned(), printed: Vec::new() };
        let failed = std::mem::replace(&mut self.failed, false);
        self.run(&command).unwrap_or_else(|error| panic!("{text}\n{error}"));
        self.failed = failed;
    }

    pub(crate) fn log_of_last(&self) -> String {
        self.running.last().map(|running| running.process.log()).unwrap_or_default()
    }

    /// Ends what was started last, as Ctrl-C does.
    pub(crate) fn interrupt(&mut self) -> Result<(), String> {
        let Some(mut last) = self.running.pop() else { return Err("nothing is running".to_owned()) };
        end(&mut last.process)
    }

    /// Whatever still runs should.
    pub(crate) fn check_running(&mut self) -> Result<(), String> {
        for running in &mut self.running {
            running.process.check_running().map_err(|error| format!("{}\n{error}", running.text))?;
        }
        Ok(())
    }

    /// Makes room for another page's.
    pub(crate) fn end_all(&mut self) {
        for mut running in std::mem::take(&mut self.running).into_iter().rev() {
            // It is killed where it does not end.
            let _ = end(&mut running.process);
        }
    }

    fn patience(&self) -> Duration {
        if self.failed { LITTLE_PATIENCE } else { PATIENCE }
    }

    fn run_to_end(&self, command: &Command) -> Result<(), String> {
        let deadline = Instant::now() + self.patience();
        loop {
            let outcome = self.run_once(command);
            if outcome.is_ok() || !is_asked_again(&command.text) || Instant::now() >= deadline {
                return outcome;
            }
            thread::sleep(PAUSE);
        }
    }

    fn run_once(&self, command: &Command) -> Result<(), String> {
        let script = format!(
            "set -o pipefail\n. \"$SHELL_FOLDER/exports\"\ncd \"$(cat \"$SHELL_FOLDER/folder\")\"\n{}\nstatus=$?\n\
             export -p > \"$SHELL_FOLDER/exports\"\npwd > \"$SHELL_FOLDER/folder\"\nexit $status\n",
            command.text
        );
        let mut process = self.bash(&script)?;
        let status = process.wait_for_exit(self.patience()).map_err(|error| error.to_string())?;
        let printed = process.log();
        let difference = printed::difference(&command.printed, &printed);
        match difference {
            Some(difference) if !command.printed.is_empty() => Err(format!("it ended with {status} and\n{difference}")),
            // Where the page shows a failure, that is what it is about.
            _ if status.success() || printed::says_something(&command.printed) => Ok(()),
            _ => Err(format!("it ended with {status}:\n{printed}")),
        }
    }

    fn start(&mut self, command: &Command) -> Result<(), String> {
        let text = &command.text;
        let mut before = Vec::new();
        while let Some(at) = self.running.iter().rposition(|running| share_address(&running.text, text)) {
            before.push(self.running.remove(at));
        }
        let takes_over = text.contains("--take-over");
        if !takes_over {
            // A reader who comes to the next one at an address has ended the one before.
            before.drain(..).try_for_each(|mut running| end(&mut running.process))?;
        }
        // What stands before the program are variables.
        let program = text.split(' ').find(|word| !word.contains('=')).unwrap_or_default();
        let (variables, program) = text.split_at(text.find(program).unwrap_or(0));
        let script = format!(
            ". \"$SHELL_FOLDER/exports\"\ncd \"$(cat \"$SHELL_FOLDER/folder\")\"\n{variables} exec {program}\n"
        );
        let process = self.bash(&script)?;
        self.running.push(Running { text: text.clone(), process });
        let patience = self.patience();
        let process = &mut self.running.last_mut().expect("it was just put there").process;
        let deadline = Instant::now() + patience;
        loop {
            let log = process.log();
            let ready = is_ready(&log) || !spoken(text).starts_with("fleetgate") && !serves_demo(text);
            let difference = printed::difference(&command.printed, &log);
            if ready && (command.printed.is_empty() || difference.is_none()) {
                break;
            }
            process.check_running().map_err(|error| error.to_string())?;
            if Instant::now() >= deadline {
                return Err(format!("it was not ready in time, or\n{}", difference.unwrap_or_default()));
            }
            thread::sleep(PAUSE);
        }
        for mut relieved in before {
            relieved.process.wait_for_exit(patience).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn bash(&self, script: &str) -> Result<Process, String> {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut bash = std::process::Command::new("bash");
        bash.args(["--norc", "-c", script]).current_dir(self.folder.path());
        bash.env("PATH", format!("{}:{path}:/usr/sbin", self.path(".shell/bin").display()));
        bash.env("SHELL_FOLDER", self.path(".shell")).env("HOME", self.path(".shell/home"));
        // Machines read it here: the end of a start is a line of its own.
        bash.env("FLEETGATE_LOG_FORMAT", "json").env("KUBERC", "off").env_remove("KUBECONFIG");
        Process::start(&bash).map_err(|error| error.to_string())
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.end_all();
    }
}

fn lasts(text: &str) -> bool {
    let text = spoken(text);
    LASTING.iter().any(|words| text.starts_with(words)) && !text.contains("--help")
}

/// Whether both listen at one address, as far as their flags say.
fn share_address(one: &str, other: &str) -> bool {
    let listens = |text: &str| -> Vec<String> {
        if serves_demo(text) {
            return ["127.0.0.1:5300", "127.0.0.1:6443", "127.0.0.1:8443", "127.0.0.1:9630"].map(str::to_owned).into();
        }
        let text = spoken(text);
        let words: Vec<&str> = text.split_whitespace().collect();
        // An agent's --dns is somebody else's.
        let agent = text.starts_with("fleetgate agent") || text.starts_with("fleetgate egress");
        let flags: &[&str] = if agent { &["--listen", "--health"] } else { &DOORS };
        let pairs = words.windows(2).filter(|pair| flags.contains(&pair[0]) && pair[1].contains(':'));
        pairs.map(|pair| pair[1].to_owned()).collect()
    };
    let others = listens(other);
    listens(one).iter().any(|address| others.contains(address))
}

fn serves_demo(text: &str) -> bool {
    ["make run", "fleetgate demo"].iter().any(|words| spoken(text).starts_with(words))
}

fn is_asked_again(text: &str) -> bool {
    let text = spoken(text);
    let changes = ["--request", "--data", " -X "].iter().any(|word| text.contains(word));
    !changes && ASKED_AGAIN.iter().any(|words| text.starts_with(words))
}

/// Without variables before it and the folder of the program, and without a namespace before kubectl's verb; of what is run in
/// a pod, that.
fn spoken(text: &str) -> String {
    let mut words: Vec<&str> = text.split([' ', '\n']).skip_while(|word| word.contains('=')).collect();
    if words.starts_with(&["kubectl", "--namespace"]) {
        words.drain(1..words.len().min(3));
    }
    let text = words.join(" ");
    let text = text.strip_prefix("target/release/").unwrap_or(&text);
    match text.split_once(" -- ") {
        Some((before, inside)) if before.contains(" exec ") => inside.to_owned(),
        _ => text.to_owned(),
    }
}

fn is_ready(log: &str) -> bool {
    ["\"message\":\"ready\"", "\"message\":\"started\""].iter().any(|line| log.contains(line))
}

fn end(process: &mut Process) -> Result<(), String> {
    if process.signal("INT").is_err() {
        return Err(format!("it had ended already:\n{}", process.log_tail()));
    }
    process.wait_for_exit(PATIENCE).map(drop).map_err(|error| error.to_string())
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(text: &str, printed: &[&str]) -> Option<String> {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let printed = printed.iter().map(|&line| line.to_owned()).collect();
        Shell::new(&repository).run(&Command { line: 1, text: text.to_owned(), printed }).err()
    }

    #[test]
    fn what_differs_or_fails_is_told() {
        assert_eq!(complaint("echo one; echo two", &["one", "two"]), None);
        assert_eq!(complaint("echo one; echo two", &[]), None);
        let told = complaint("echo one; echo two", &["one", "three"]).unwrap();
        assert!(told.ends_with("  one\n- three\n+ two"), "{told}");
        assert!(complaint("echo no; false", &[]).unwrap().contains("no"));
        assert!(complaint("false | cat", &[]).is_some());
        // A failure that the page shows, and one that it does not.
        assert_eq!(complaint("echo refused >&2; false", &["refused"]), None);
        assert!(complaint("echo refused; false", &["…"]).is_some());
        assert!(complaint("fleetgate serve --fleet nowhere", &[]).unwrap().contains("ended by itself"));
    }

    #[test]
    fn variables_and_folders_stay() {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut shell = Shell::new(&repository);
        shell.must("mkdir inner && cd inner && export WORD='two words'");
        shell.must("test \"$WORD\" = 'two words' && test \"$(basename \"$PWD\")\" = inner");
    }

    #[test]
    fn who_listens_where_another_did_comes_after_it() {
        assert!(share_address("make run", "fleetgate serve --fleet x --admin 127.0.0.1:9630"));
        assert!(!share_address("fleetgate serve --dns 127.0.0.1:53", "fleetgate serve --dns 127.0.0.2:53"));
        assert!(!share_address("fleetgate serve --dns 127.0.0.1:53", "fleetgate agent tunnel --dns 127.0.0.1:53"));
        assert!(lasts("HTTPS_PROXY=x target/release/fleetgate serve") && !lasts("fleetgate dns config c1"));
        assert!(is_asked_again("kubectl --namespace x exec deployment/y -- fleetgate get refusals"));
        assert!(!is_asked_again("curl -s --request POST http://127.0.0.1/"));
    }
}
