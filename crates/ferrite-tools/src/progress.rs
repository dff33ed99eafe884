//! What is shown while one waits: a bar on a terminal, nothing elsewhere.
//!
//! Locking: none here; the bar has its own. Any thread may call.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shows how far a stage is.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar on the terminal of standard error; none if that is no terminal.
    pub fn on_terminal() -> Progress {
        Progress {
            bar: ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10)),
        }
    }

    /// Shows nothing.
    pub fn silent() -> Progress {
        Progress {
            bar: ProgressBar::hidden(),
        }
    }

    /// A stage of `steps` steps begins.
    pub fn stage(&self, name: &str, steps: u64) {
        let style = ProgressStyle::with_template("{msg:<22} [{bar:40}] {pos}/{len} {eta}");
        self.bar
            .set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        self.bar.set_message(name.to_owned());
        self.bar.set_length(steps);
        self.bar.set_position(0);
    }

    /// So many steps are done.
    pub fn step(&self, steps: u64) {
        self.bar.inc(steps);
    }

    /// The last stage is over.
    pub fn done(&self) {
        self.bar.finish_and_clear();
    }
}
