//! Progress on the terminal: a spinner while a long step runs, a line for each step that is done; without a terminal,
//! lines only. Once the service is ready, events go to the log.

use std::{
    io::{IsTerminal, Write},
    sync::{Mutex, MutexGuard, PoisonError, mpsc::Sender},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use sluice_instance::{Event, Observer};

use crate::signals::Wake;

/// Tells a person, and the main thread, what happens.
pub(crate) struct Console {
    stage: Mutex<Stage>,
    wake: Sender<Wake>,
}

enum Stage {
    /// Steps follow one another; a spinner turns for the one under way, on a terminal.
    Starting(Option<ProgressBar>),
    /// The service runs.
    Running,
}

impl Console {
    pub(crate) fn new(wake: Sender<Wake>) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { stage: Mutex::new(Stage::Starting(terminal.then(spinner))), wake }
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        // The stage is replaced whole.
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A step that may take a while begins.
    pub(crate) fn begin(&self, what: &str) {
        match &*self.stage() {
            Stage::Starting(Some(bar)) => bar.set_message(what.to_owned()),
            Stage::Starting(None) => say(what),
            Stage::Running => tracing::info!("{what}"),
        }
    }

    /// A step is done, or something else deserves a line.
    pub(crate) fn line(&self, what: &str) {
        match &*self.stage() {
            Stage::Starting(Some(bar)) => bar.suspend(|| say(what)),
            Stage::Starting(None) => say(what),
            Stage::Running => tracing::info!("{what}"),
        }
    }

    /// The service is ready: the spinner goes, and the log takes over.
    pub(crate) fn ready(&self) {
        if let Stage::Starting(Some(bar)) = std::mem::replace(&mut *self.stage(), Stage::Running) {
            bar.finish_and_clear();
        }
    }
}

impl Observer for Console {
    fn event(&self, event: Event) {
        match &event {
            Event::Creating { .. }
            | Event::Starting { .. }
            | Event::StillStarting { .. }
            | Event::MakingEnvironment { .. }
            | Event::ProgramStarted { .. }
            | Event::ClusterWaiting { .. } => {
                self.begin(&event.to_string());
            }
            Event::Crashed { .. }
            | Event::RestartFailed { .. }
            | Event::GaveUp { .. }
            | Event::Stopped { failed: Some(_), .. }
            | Event::ProgramEnded { .. } => {
                tracing::error!("{event}")
            }
            _ => self.line(&event.to_string()),
        }
        if let Event::GaveUp { .. } = event {
            // No receiver: the process is about to end.
            let _ = self.wake.send(Wake::Down(event.to_string()));
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.ready();
    }
}

/// A line on standard error. Nobody may be reading it any more, which must not end the service.
fn say(what: &str) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

fn spinner() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    // The template is a constant; if it were wrong, indicatif's own would do.
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
