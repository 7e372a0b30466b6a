//! The allocator of every program that serves.
//!
//! jemalloc, because it returns to the system what ten thousand followers of runs have left behind,
//! where glibc keeps all of it, and calls are up to a half faster. Its idle memory is the same. How soon it
//! returns memory is an option of its build, in `.cargo/config.toml`.

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;
