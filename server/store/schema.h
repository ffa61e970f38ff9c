// The tables of DATA/store.sqlite, and the handling of a file that is not such a database.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/database.h"

namespace plumbline::server {

// The journal that a store belongs to. A store of another journal cannot be trusted. A store that
// is ahead of its journal (which then lost its end) cannot be trusted either.
struct StoreOrigin {
  std::string journal_id;     // empty: there is no journal, and the store begins empty
  uint64_t newest_entry = 0;  // that the journal holds
};

struct OpenedDatabase {
  std::unique_ptr<Database> database;
  uint64_t position = 0;  // everything up to this journal entry is in it
  std::string rebuild;    // range that is being rebuilt; empty: none
  std::string problem;    // the renamed file and the reason; empty: none was renamed
};

// Opens or creates the file. If it is damaged, or has another schema or origin, it is renamed to
// PATH.aside (over an older one), a new one is begun, and `problem` explains this. Returns other
// errors (no permission, disk full).
absl::StatusOr<OpenedDatabase> OpenDatabase(const std::string& path, const StoreOrigin& origin);

// Renames the file, and removes its companion files.
absl::Status SetDatabaseAside(const std::string& path);

}  // namespace plumbline::server
