//! The conformance cases of the text dialects and the promises that hold for every text.

mod benign;
mod cases;
mod cuts;
mod injection;
mod linear;
mod mutations;
mod promises;
mod reference;
mod trained;
