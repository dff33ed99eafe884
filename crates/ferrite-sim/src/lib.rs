//! The simulator: the whole core under a deterministic scheduler on a simulated disk, compared
//! with a model that remembers everything. One 64-bit seed is one run.
//!
//! # What is where
//! - `plan`: the random configuration of a run; `corner`: the one thing that it may be about; `draw`, `draw_corner` and
//!   `draw_shape` choose. `rows`: what the tables hold.
//! - `model`: the oracle. `environment`: what outlives a crash.
//! - `client`, `write`, `read`: what sessions do, and what they must see. `dirty`: reads at READ
//!   UNCOMMITTED. `bulk`: transactions with very many values out of line. `temporary`: tables of
//!   one connection.
//! - `family`: foreign keys as the model has them. `foreign`: statements on tables that have some;
//!   `foreign_look`: what they look at. `foreign_ddl`: tables and foreign keys come and go.
//! - `decide`: prepared transactions without a session. `ddl`: tables come, go, and are copied.
//!   `travel`: one goes to a file and back. `ddl_client`: chooses among all of it. `kill`: statements
//!   are killed. `damage`: files are. `pool`: the buffer pool changes its size.
//! - `guarded`: sessions that a crash unwinds.
//! - `backup`: hot backups, whose copies replace the disk.
//! - `verify`: what must be there after a restart.
//! - `lifecycle`: one life of the program. `run`: lives, crashes and faults; the whole of a run.
//!
//! # Invariants
//! - Every choice comes from the seed; maps are ordered; no address, thread or clock of the
//!   real machine reaches a decision.
//! - The model's mutex is never held over a call of the engine.

#![forbid(unsafe_code)]

pub mod backup;
pub mod bulk;
pub mod client;
pub mod corner;
pub mod damage;
pub mod ddl;
pub mod ddl_client;
pub mod decide;
pub mod dirty;
pub mod draw;
pub mod draw_corner;
pub mod draw_shape;
pub mod environment;
pub mod family;
pub mod foreign;
pub mod foreign_ddl;
pub mod foreign_look;
pub mod guarded;
pub mod kept;
pub mod kept_state;
pub mod kill;
pub mod lifecycle;
pub mod model;
pub mod plan;
pub mod pool;
pub mod read;
pub mod rows;
pub mod run;
pub mod semi;
pub mod temporary;
pub mod travel;
pub mod verify;
pub mod write;
