//! Who attends whom in a packed row; chunks and their pair counts; the parser's refusals.
