//! Stories in which several functions take part: they write beside each other, whatever is asked in whatever order, and
//! the numbers agree. The tests stand in `tests/it`; what one function promises alone is tested in its own crate.
