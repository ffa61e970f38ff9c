// The tables of DATA/store.sqlite, and what is done with a file that is no such database any more.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/database.h"

namespace plumbline::server {

// What a store belongs to. A store of another journal, or one that is ahead of its journal (which
// then lost its end), holds what nobody can vouch for.
struct StoreOrigin {
  std::string journal_id;     // empty: there is no journal; the store begins empty
  uint64_t newest_entry = 0;  // that the journal holds
};

struct OpenedDatabase {
  std::unique_ptr<Database> database;
  uint64_t position = 0;  // journal entry that it holds everything up to
  std::string rebuild;    // range that is being rebuilt; empty: none
  std::string problem;    // what was set aside and why; empty: nothing was
};

// Opens or creates the file. One that is damaged, of another schema or of another origin is renamed
// to PATH.aside (over an older one) and a new one is begun; that is said in `problem`. Other errors
// (no permission, disk full) are returned.
absl::StatusOr<OpenedDatabase> OpenDatabase(const std::string& path, const StoreOrigin& origin);

// Renames the file, and removes what SQLite keeps beside it.
absl::Status SetDatabaseAside(const std::string& path);

}  // namespace plumbline::server
