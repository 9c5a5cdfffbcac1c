"""What results and changes are kept in or sent to: one folder a store, with what is particular to it."""
