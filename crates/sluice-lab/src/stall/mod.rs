//! Stalls: where a series stands still, and why.
//!
//! [`detect()`] finds them by the series alone; [`attribute()`] compares what was sampled inside a stall with the rest
//! of the turn, by the rules of `causes`. A cause without evidence is never named: then it is [`Cause::Unknown`].

mod causes;
mod detect;

pub use self::{
    causes::{Circumstances, attribute},
    detect::detect,
};
pub use crate::result::{Cause, Confirmation, Evidence, Finding, Stall};
