#include "server/store/schema.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace plumbline::server {
namespace {

constexpr int kSchema = 1;

// Pages have 8 KiB: a tile of 64 x 64 takes two or three. The write-ahead log is synced when it is
// copied back. So a killed process loses nothing; a power cut loses the last writes, which the
// journal restores.
constexpr const char* kSettings =
    "PRAGMA page_size=8192; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
    "PRAGMA journal_size_limit=67108864; PRAGMA cache_size=-16384;";

constexpr const char* kTables = R"(
CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS runs(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS series(
  id INTEGER PRIMARY KEY, run INTEGER NOT NULL, role INTEGER NOT NULL,
  layer TEXT NOT NULL, op TEXT NOT NULL, UNIQUE(run, role, layer, op));
CREATE TABLE IF NOT EXISTS spans(
  id INTEGER PRIMARY KEY, run INTEGER NOT NULL, attempt INTEGER NOT NULL, role INTEGER NOT NULL,
  generation INTEGER NOT NULL, first_step INTEGER NOT NULL, last_step INTEGER NOT NULL,
  samples INTEGER NOT NULL, sealed_entry INTEGER NOT NULL, sealed_step INTEGER NOT NULL,
  UNIQUE(run, attempt, role, generation));
-- first_step is that of the block; the tile itself lists its steps. short: the block is still open;
-- the tile is replaced when the block is full.
CREATE TABLE IF NOT EXISTS tiles(
  id INTEGER PRIMARY KEY, span INTEGER NOT NULL, series INTEGER NOT NULL,
  first_step INTEGER NOT NULL, rank_block INTEGER NOT NULL, last_step INTEGER NOT NULL,
  samples INTEGER NOT NULL, sealed_s INTEGER NOT NULL, short INTEGER NOT NULL,
  data BLOB NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS tiles_by_place ON tiles(span, series, first_step, rank_block);
CREATE INDEX IF NOT EXISTS short_tiles ON tiles(span) WHERE short;
CREATE TABLE IF NOT EXISTS extents(
  span INTEGER NOT NULL, series INTEGER NOT NULL, rank_block INTEGER NOT NULL,
  ranks INTEGER NOT NULL, first_step INTEGER NOT NULL, last_step INTEGER NOT NULL,
  samples INTEGER NOT NULL, PRIMARY KEY(span, series, rank_block)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS gaps(
  run TEXT NOT NULL, attempt INTEGER NOT NULL, reason TEXT NOT NULL, step_first INTEGER NOT NULL,
  step_last INTEGER NOT NULL, items INTEGER NOT NULL, PRIMARY KEY(run, attempt, reason, step_first))
  WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS incident_history(
  fingerprint TEXT NOT NULL, revision INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY(fingerprint, revision)) WITHOUT ROWID;
)";

absl::Status WriteMeta(Database* database, const StoreOrigin& origin) {
  auto insert = database->Prepare("INSERT INTO meta(key, value) VALUES('journal', ?)");
  if (!insert.ok()) return insert.status();
  if (auto s = insert->BindText(1, origin.journal_id).Run(); !s.ok()) return s;
  return database->Execute(absl::StrCat("PRAGMA user_version=", kSchema));
}

// Checks an existing database. Returns FailedPrecondition if it belongs to another journal.
absl::Status CheckOrigin(const Database& database, const StoreOrigin& origin, uint64_t position) {
  auto journal = database.Prepare("SELECT value FROM meta WHERE key='journal'");
  if (!journal.ok()) return journal.status();
  const auto row = journal->Next();
  if (!row.ok()) return row.status();
  if (!*row || origin.journal_id.empty() || journal->Bytes(0) != origin.journal_id)
    return absl::FailedPreconditionError(
        absl::StrCat(database.path(), ": it was derived from another journal"));
  if (position <= origin.newest_entry) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(database.path(), ": it is at entry ", position,
                                                    " of the journal, which ends at ",
                                                    origin.newest_entry));
}

absl::StatusOr<OpenedDatabase> TryOpen(const std::string& path, const StoreOrigin& origin) {
  OpenedDatabase opened;
  auto database = Database::Open(path, Database::Mode::kReadWrite);
  if (!database.ok()) return database.status();
  opened.database = std::move(*database);
  if (auto s = opened.database->Execute(kSettings); !s.ok()) return s;
  const auto version = opened.database->Number("PRAGMA user_version");
  if (!version.ok()) return version.status();
  const auto tables = opened.database->Number("SELECT count(*) FROM sqlite_master");
  if (!tables.ok()) return tables.status();
  if (*tables > 0 && *version != kSchema)
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": expected a store of schema ", kSchema, ", found ", *version));
  if (auto s = opened.database->Execute(kTables); !s.ok()) return s;
  if (*tables == 0) {
    if (auto s = WriteMeta(opened.database.get(), origin); !s.ok()) return s;
    return opened;
  }
  const auto position = opened.database->Number("SELECT value FROM meta WHERE key='position'");
  if (!position.ok()) return position.status();
  opened.position = static_cast<uint64_t>(*position);
  auto rebuild = opened.database->Prepare("SELECT value FROM meta WHERE key='rebuild'");
  if (!rebuild.ok()) return rebuild.status();
  const auto unfinished = rebuild->Next();
  if (!unfinished.ok()) return unfinished.status();
  if (*unfinished) opened.rebuild = rebuild->Bytes(0);
  if (auto s = CheckOrigin(*opened.database, origin, opened.position); !s.ok()) return s;
  return opened;
}

}  // namespace

absl::Status SetDatabaseAside(const std::string& path) {
  std::remove((path + "-wal").c_str());
  std::remove((path + "-shm").c_str());
  if (std::rename(path.c_str(), (path + ".aside").c_str()) == 0 || errno == ENOENT)
    return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(path, ": expected to rename it to ", path, ".aside: ", std::strerror(errno)));
}

absl::StatusOr<OpenedDatabase> OpenDatabase(const std::string& path, const StoreOrigin& origin) {
  auto opened = TryOpen(path, origin);
  if (opened.ok()) return opened;
  const absl::Status why = opened.status();
  if (why.code() != absl::StatusCode::kDataLoss &&
      why.code() != absl::StatusCode::kFailedPrecondition) {
    return why;
  }
  if (auto s = SetDatabaseAside(path); !s.ok()) return s;
  opened = TryOpen(path, origin);
  if (opened.ok()) {
    opened->problem = absl::StrCat(std::string(why.message()), "; it was renamed to ", path,
                                   ".aside and is rebuilt from the journal as far as possible");
  }
  return opened;
}

}  // namespace plumbline::server
