//! A provider on loopback that answers by script, with every fault a wire can have.
