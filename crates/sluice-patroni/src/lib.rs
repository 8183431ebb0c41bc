//! Patroni's REST API (Patroni's documentation, "Patroni REST API"): questions to a member, and what it answers.
//!
//! The one client for all who ask: the pool that follows a cluster, the keeper of an instance's nodes, and the command
//! `sluice cluster`. It blocks, and each question has a time limit for all of it but the look-up of a name; nothing is
//! kept between two questions. It knows no cluster: who asks whom, and what follows from the answer, is the caller's.
//!
//! | file | what it is about |
//! |---|---|
//! | `http` | one question, and its answer |
//! | `members` | a cluster's members, as one of them tells |
//! | `own` | what a member says of its own PostgreSQL |

mod http;
mod members;
mod own;

pub use http::{Answer, AskError, Credentials, Method, Question};
pub use members::{Lag, Member, Members};
pub use own::{Own, Replayed, Tags};
