//! A headless Chromium that does what it is told, by the DevTools protocol over two pipes.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Time limit for one answer: far more than it takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser of its own profile. It is gone, with all of its processes, when this is dropped.
pub(super) struct Chromium {
    child: Child,
    requests: File,
    answers: Receiver<Value>,
    last_id: u64,
    events: Vec<Value>,
    session: Value,
    _profile: TempDir,
}

/// The way in which a page is looked at: its width, and whether on a phone, in the dark or in print.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub(super) name: &'static str,
    pub(super) width_px: u32,
    pub(super) is_phone: bool,
    pub(super) is_dark: bool,
    pub(super) is_print: bool,
}

impl Chromium {
    /// Starts one with an empty page.
    pub(super) fn start() -> Self {
        let profile = TempDir::with_prefix("sluice-chromium-").expect("a folder");
        let (requests, answers) = (profile.path().join("requests"), profile.path().join("answers"));
        let made = Command::new("mkfifo").args([&requests, &answers]).status().expect("mkfifo");
        assert!(made.success(), "pipes");
        // The shell puts the pipes where Chromium looks for them, and becomes Chromium.
        let mut command = Command::new("sh");
        command.args(["-c", "exec chromium \"$@\" 3<\"$REQUESTS\" 4>\"$ANSWERS\"", "sh"]);
        command.env("REQUESTS", &requests).env("ANSWERS", &answers);
        command.arg(format!("--user-data-dir={}", profile.path().join("profile").display()));
        command.args([
            "--headless=new",
            "--remote-debugging-pipe",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-breakpad",
            "--disable-extensions",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            "about:blank",
        ]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let child = command.spawn().expect("sh");
        let requests = OpenOptions::new().write(true).open(&requests).expect("a pipe");
        let answers = listen(File::open(&answers).expect("a pipe"));
        let mut browser =
            Self { child, requests, answers, last_id: 0, events: Vec::new(), session: Value::Null, _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        browser.session = attached["sessionId"].clone();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Opens a file in a view, and returns all that happened on the way.
    pub(super) fn open(&mut self, file: &Path, view: View) -> Vec<Value> {
        let media = if view.is_print { "print" } else { "screen" };
        let scheme = if view.is_dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "media": media, "features": features }));
        let metrics = json!({
            "width": view.width_px, "height": 900, "deviceScaleFactor": 1, "mobile": view.is_phone,
        });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        self.events.clear();
        self.call("Page.navigate", json!({ "url": format!("file://{}", file.display()) }));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let message = self.next("the page to load");
            self.events.push(message);
        }
        // What follows a load (the console, late requests) comes before the answer to this.
        self.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 50)))");
        std::mem::take(&mut self.events)
    }

    /// The value of a JavaScript expression.
    pub(super) fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", parameters);
        assert!(answer["exceptionDetails"].is_null(), "{answer}");
        answer["result"]["value"].clone()
    }

    /// A picture of the whole page, as PNG.
    pub(super) fn picture(&mut self) -> Vec<u8> {
        let answer = self.call("Page.captureScreenshot", json!({ "format": "png", "captureBeyondViewport": true }));
        BASE64_STANDARD.decode(answer["data"].as_str().expect("a picture")).expect("base64")
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let mut request = json!({ "id": self.last_id, "method": method, "params": parameters });
        if !self.session.is_null() {
            request["sessionId"] = self.session.clone();
        }
        self.requests
            .write_all(format!("{request}\0").as_bytes())
            .expect("chromium listens (scripts/test-deps.sh installs it)");
        loop {
            let message = self.next(method);
            if message["id"] == self.last_id {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    fn next(&mut self, what: &str) -> Value {
        self.answers.recv_timeout(PATIENCE).unwrap_or_else(|error| {
            panic!("{what}: no answer from chromium ({error}); scripts/test-deps.sh installs it")
        })
    }
}

/// Messages end with a zero.
fn listen(answers: File) -> Receiver<Value> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for message in BufReader::new(answers).split(0) {
            let message = message.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
            if message.is_none_or(|message| sender.send(message).is_err()) {
                return;
            }
        }
    });
    receiver
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = self.requests.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let begin = Instant::now();
        let mut has_ended = false;
        while !has_ended && begin.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(20));
            has_ended = matches!(self.child.try_wait(), Ok(Some(_)));
        }
        // It leads a group of its own: whatever it has started is in there.
        let group = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.child.wait();
        while rustix::process::test_kill_process_group(group).is_ok() {
            if begin.elapsed() > Duration::from_secs(20) {
                assert!(thread::panicking(), "processes of chromium are left");
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}
