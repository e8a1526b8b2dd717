//! The capture state machine: pure, and the same for both devices.
//!
//! ```text
//!            begin                 finish, accepted
//!   Idle ───────────▶ Capturing ─────────────────▶ Captured
//!                         │
//!                         └──────────────────────▶ Failed
//!                            finish, refused (error, panic, a forbidden operation, nothing recorded)
//! ```
//!
//! `Captured` and `Failed` describe the last capture; both can begin another. A capture is ended whatever
//! happens in its body, so the stream is usable again afterwards.

use std::fmt;

/// Where a stream is with capturing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureState {
    /// The stream never captured.
    Idle,
    /// Work submitted now is recorded instead of run.
    Capturing,
    /// The last capture gave a graph.
    Captured,
    /// The last capture was refused.
    Failed,
}

/// Something done during a capture that a graph cannot hold.
///
/// None of these is carried out: the operation returns an error at once, and the capture is refused when it
/// ends, even when its body ignored that error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// An allocation (its name): its address would be baked, and its life would end with the body.
    Allocation(String),
    /// An allocation freed (its name): what was recorded may point at it.
    Free(String),
    /// A module load (its name): it synchronises the device.
    ModuleLoad(String),
    /// A wait of the host for the device (the operation): a replay would not wait.
    Synchronisation(&'static str),
    /// A copy from or to pageable host memory (the buffer's name): a replay would read or write that host
    /// memory again, when it may be gone.
    PageableCopy(String),
    /// Access to the memory of another device (its name) that was not asked for before: enabling it changes the device.
    PeerAccess(String),
    /// A copy (the source's name) between devices that are not connected: it goes through the host, in steps that a graph
    /// would have to wait for.
    StagedCopy(String),
    /// An operation that failed (its error): a graph without it would not do what its body says.
    Failure(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allocation(name) => write!(f, "allocation of `{name}`"),
            Self::Free(name) => write!(f, "free of `{name}`"),
            Self::ModuleLoad(name) => write!(f, "load of module `{name}`"),
            Self::Synchronisation(what) => write!(f, "host synchronisation ({what})"),
            Self::PageableCopy(name) => write!(f, "pageable copy of `{name}`"),
            Self::PeerAccess(device) => write!(f, "first access to the memory of {device}"),
            Self::Failure(error) => write!(f, "a failed operation ({error})"),
            Self::StagedCopy(name) => {
                write!(f, "copy of `{name}` to another device through the host, there being no peer access")
            }
        }
    }
}

/// Why a capture gave no graph.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The stream is capturing already.
    #[error("the stream is capturing already: a capture cannot be nested")]
    AlreadyCapturing,
    /// The operation cannot be part of a capture; the capture under way will be refused.
    #[error("{0} during a capture: do it before the capture begins")]
    Forbidden(Violation),
    /// The body did what a capture forbids, once or more.
    #[error("the capture was refused, it holds {}", list(.0))]
    Refused(Vec<Violation>),
    /// Nothing was recorded.
    #[error("the capture holds no node: its body submitted nothing to the capturing stream")]
    Empty,
    /// The body returned an error.
    #[error("the capture's body failed: {0}")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The device refused to begin or to end the capture.
    #[error("{call} failed on {device}: {reason}")]
    Device {
        /// The call.
        call: &'static str,
        /// The device.
        device: String,
        /// The driver's or the simulator's words.
        reason: String,
    },
}

fn list(violations: &[Violation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// How the body of a capture ended.
#[derive(Debug)]
pub enum BodyOutcome {
    /// It returned `Ok`.
    Returned,
    /// It returned this error.
    Failed(Box<dyn std::error::Error + Send + Sync>),
    /// It panicked, and the panic is on its way up.
    Panicked,
}

/// The state of one stream's captures. See the module's documentation for the transitions.
#[derive(Debug)]
pub struct CaptureMachine {
    state: CaptureState,
    violations: Vec<Violation>,
}

impl Default for CaptureMachine {
    fn default() -> Self {
        Self { state: CaptureState::Idle, violations: Vec::new() }
    }
}

impl CaptureMachine {
    /// The state now.
    pub fn state(&self) -> CaptureState {
        self.state
    }

    /// Begins a capture.
    ///
    /// # Errors
    /// [`CaptureError::AlreadyCapturing`] when one is under way; the one under way goes on.
    pub fn begin(&mut self) -> Result<(), CaptureError> {
        if self.state == CaptureState::Capturing {
            return Err(CaptureError::AlreadyCapturing);
        }
        self.violations.clear();
        self.state = CaptureState::Capturing;
        Ok(())
    }

    /// Notes a forbidden operation and gives the error that the operation returns. Outside a capture nothing
    /// is noted and `None` returned.
    pub fn forbid(&mut self, violation: Violation) -> Option<CaptureError> {
        if self.state != CaptureState::Capturing {
            return None;
        }
        self.violations.push(violation.clone());
        Some(CaptureError::Forbidden(violation))
    }

    /// Ends the capture under way. `nodes` is how many nodes the device recorded, or how ending it failed.
    ///
    /// # Errors
    /// In this order: forbidden operations (they are the cause of what follows), the body's error, the
    /// device's error, an empty graph. A panic is refused as [`CaptureError::Empty`]; nobody sees that, since
    /// the panic goes on.
    pub fn finish(
        &mut self,
        body: BodyOutcome,
        nodes: Result<usize, CaptureError>,
    ) -> Result<(), CaptureError> {
        let violations = std::mem::take(&mut self.violations);
        let verdict = match (body, nodes) {
            _ if !violations.is_empty() => Err(CaptureError::Refused(violations)),
            (BodyOutcome::Failed(error), _) => Err(CaptureError::Body(error)),
            (BodyOutcome::Panicked, _) => Err(CaptureError::Empty),
            (BodyOutcome::Returned, Err(error)) => Err(error),
            (BodyOutcome::Returned, Ok(0)) => Err(CaptureError::Empty),
            (BodyOutcome::Returned, Ok(_)) => Ok(()),
        };
        self.state = if verdict.is_ok() { CaptureState::Captured } else { CaptureState::Failed };
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capturing() -> CaptureMachine {
        let mut machine = CaptureMachine::default();
        assert_eq!(machine.state(), CaptureState::Idle);
        machine.begin().unwrap();
        assert_eq!(machine.state(), CaptureState::Capturing);
        machine
    }

    #[test]
    fn a_capture_with_nodes_is_captured_and_can_be_followed_by_another() {
        let mut machine = capturing();
        machine.finish(BodyOutcome::Returned, Ok(3)).unwrap();
        assert_eq!(machine.state(), CaptureState::Captured);
        machine.begin().unwrap();
        assert_eq!(machine.state(), CaptureState::Capturing);
    }

    #[test]
    fn nesting_is_refused_and_the_outer_capture_goes_on() {
        let mut machine = capturing();
        assert!(matches!(machine.begin(), Err(CaptureError::AlreadyCapturing)));
        assert_eq!(machine.state(), CaptureState::Capturing);
        machine.finish(BodyOutcome::Returned, Ok(1)).unwrap();
    }

    #[test]
    fn an_empty_capture_is_refused() {
        let mut machine = capturing();
        assert!(matches!(machine.finish(BodyOutcome::Returned, Ok(0)), Err(CaptureError::Empty)));
        assert_eq!(machine.state(), CaptureState::Failed);
        machine.begin().unwrap();
    }

    #[test]
    fn every_violation_is_reported_and_forgotten_by_the_next_capture() {
        let mut machine = capturing();
        for violation in [
            Violation::Allocation("a".into()),
            Violation::Free("f".into()),
            Violation::Synchronisation("synchronize"),
            Violation::PageableCopy("p".into()),
            Violation::ModuleLoad("m".into()),
            Violation::Failure("launch of `k`: why".into()),
        ] {
            assert!(matches!(machine.forbid(violation), Some(CaptureError::Forbidden(_))));
        }
        let body = BodyOutcome::Failed("ignored, the violations caused it".into());
        let error = machine.finish(body, Ok(7)).unwrap_err();
        let CaptureError::Refused(list) = &error else { panic!("{error}") };
        assert_eq!(list.len(), 6);
        let text = error.to_string();
        for word in [
            "allocation of `a`",
            "free of `f`",
            "synchronize",
            "pageable copy of `p`",
            "module `m`",
            "of `k`: why",
        ] {
            assert!(text.contains(word), "{text}");
        }
        machine.begin().unwrap();
        machine.finish(BodyOutcome::Returned, Ok(1)).unwrap();
    }

    #[test]
    fn nothing_is_forbidden_outside_a_capture() {
        let mut machine = CaptureMachine::default();
        assert!(machine.forbid(Violation::Synchronisation("synchronize")).is_none());
        machine.begin().unwrap();
        machine.finish(BodyOutcome::Returned, Ok(1)).unwrap();
        assert!(machine.forbid(Violation::Allocation("a".into())).is_none());
    }

    #[test]
    fn error_panic_and_device_failure_all_end_in_failed() {
        let mut machine = capturing();
        let error = machine.finish(BodyOutcome::Failed("the body's words".into()), Ok(2)).unwrap_err();
        assert!(error.to_string().contains("the body's words"));
        assert_eq!(machine.state(), CaptureState::Failed);
        machine.begin().unwrap();
        machine.finish(BodyOutcome::Panicked, Ok(2)).unwrap_err();
        assert_eq!(machine.state(), CaptureState::Failed);
        machine.begin().unwrap();
        let device =
            CaptureError::Device { call: "cuStreamEndCapture", device: "cuda:0".into(), reason: "x".into() };
        assert!(matches!(
            machine.finish(BodyOutcome::Returned, Err(device)),
            Err(CaptureError::Device { .. })
        ));
        assert_eq!(machine.state(), CaptureState::Failed);
    }
}
