//! A Chromium without a screen, and what a person does with it.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client, ClientBuilder, Locator};
use http::Method;
use hyper_util::client::legacy::connect::HttpConnector;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::Process;
use url::{ParseError, Url};

/// Long enough for the slowest machine: reached only by a test that fails.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Programs that this machine has; `None` means that the test should return.
pub(crate) struct Programs {
    chromium: PathBuf,
    chromedriver: PathBuf,
}

pub(crate) fn programs() -> Option<Programs> {
    Some(Programs { chromium: testbed::program("chromium")?, chromedriver: testbed::program("chromedriver")? })
}

pub(crate) struct Browser {
    pub(crate) client: Client,
    base: String,
    _process: Option<Chromium>,
    _driver: Process,
    _profile: TempDir,
}

/// The browser itself, which its driver does not take along where a test ends by panicking.
struct Chromium(i64);

impl Drop for Chromium {
    fn drop(&mut self) {
        let id = i32::try_from(self.0).ok().and_then(Pid::from_raw).filter(|_| std::thread::panicking());
        // It may have ended by itself.
        let _ = id.map(|id| kill_process(id, Signal::KILL));
    }
}

/// A screen, and whether it is a dark one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) dark: bool,
}

pub(crate) const LAPTOP: Screen = Screen { width: 1280, height: 800, dark: false };
pub(crate) const PHONE: Screen = Screen { width: 390, height: 844, dark: false };

impl Screen {
    pub(crate) fn dark(self) -> Self {
        Self { dark: true, ..self }
    }
}

/// What only Chromium's driver knows.
#[derive(Debug)]
struct Own {
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for Own {
    fn endpoint(&self, base: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        base.join(&format!("session/{}/{}", session.unwrap_or_default(), self.path))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.body.to_string()))
    }
}

impl Browser {
    /// `base` is what paths begin with.
    pub(crate) async fn start(programs: &Programs, base: String) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut driver = Process::start(Command::new(&programs.chromedriver).arg("--port=0")).unwrap();
        let line = driver.wait_for_line("started successfully on port ", PATIENCE).unwrap();
        let port = line.rsplit(' ').next().unwrap().trim_end_matches('.').to_owned();
        let data = format!("--user-data-dir={}", profile.path().display());
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            &data,
        ];
        let wanted = json!({
            "goog:chromeOptions": { "binary": programs.chromium, "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        });
        let Value::Object(wanted) = wanted else { unreachable!("it is an object") };
        let driver_url = format!("http://127.0.0.1:{port}");
        let client = ClientBuilder::new(HttpConnector::new()).capabilities(wanted).connect(&driver_url).await.unwrap();
        let process = client.capabilities().and_then(|have| have.get("goog:processID")?.as_i64()).map(Chromium);
        let browser = Self { client, base, _process: process, _driver: driver, _profile: profile };
        browser.show_on(LAPTOP).await;
        browser
    }

    /// Loads a page, and waits until it follows the fleet where it does so.
    pub(crate) async fn open(&self, path: &str) {
        self.client.goto(&format!("{}{path}", self.base)).await.unwrap();
        self.until("the page is live", "return !document.querySelector('main[data-live]') || document.getElementById('live').textContent === 'live'").await;
    }

    pub(crate) async fn run(&self, script: &str) -> Value {
        self.client.execute(script, Vec::new()).await.unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    pub(crate) async fn until(&self, what: &str, script: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.run(script).await != Value::Bool(true) {
            assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}\n{}", self.text("body").await);
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// What a person reads there: found and read in one go, as a page that follows the fleet replaces its parts.
    pub(crate) async fn text(&self, selector: &str) -> String {
        let script = "return document.querySelector(arguments[0])?.innerText ?? null";
        let read = self.client.execute(script, vec![selector.into()]).await.expect(selector);
        read.as_str().unwrap_or_else(|| panic!("there is no {selector}")).to_owned()
    }

    /// What is replaced between finding and clicking was not clicked, and is found again.
    pub(crate) async fn click(&self, selector: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.client.find(Locator::Css(selector)).await.expect(selector).click().await {
                Ok(()) => return,
                Err(error) if error.is_stale_element_reference() && Instant::now() < deadline => {}
                Err(error) => panic!("{selector}: {error}"),
            }
        }
    }

    /// Types into a field and sends its form by the Enter key.
    pub(crate) async fn enter(&self, selector: &str, text: &str) {
        let field = self.client.find(Locator::Css(selector)).await.expect(selector);
        field.clear().await.unwrap();
        field.send_keys(&format!("{text}\u{e007}")).await.unwrap();
    }

    pub(crate) async fn path(&self) -> String {
        let url = self.client.current_url().await.unwrap();
        url.path().to_owned()
    }

    pub(crate) async fn show_on(&self, screen: Screen) {
        let Screen { width, height, dark } = screen;
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.devtools("Emulation.setDeviceMetricsOverride", metrics).await;
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.devtools("Emulation.setEmulatedMedia", media).await;
    }

    /// As it is on the screen.
    pub(crate) async fn screenshot(&self) -> Vec<u8> {
        self.client.screenshot().await.unwrap()
    }

    async fn devtools(&self, command: &str, parameters: Value) -> Value {
        let body = json!({ "cmd": command, "params": parameters });
        self.client.issue_cmd(Own { path: "goog/cdp/execute", body }).await.expect(command)
    }

    /// Lines that the browser has written to its console since the last call.
    pub(crate) async fn complaints(&self) -> Vec<String> {
        let lines = self.client.issue_cmd(Own { path: "se/log", body: json!({ "type": "browser" }) }).await.unwrap();
        let is_bad = |line: &&Value| line["level"] == "SEVERE" || line["level"] == "WARNING";
        lines.as_array().unwrap().iter().filter(is_bad).map(|line| line["message"].to_string()).collect()
    }

    pub(crate) async fn close(self) {
        self.client.clone().close().await.unwrap();
    }
}
