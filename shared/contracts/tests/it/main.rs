//! Pages that are made from the contract.

mod access_page;
