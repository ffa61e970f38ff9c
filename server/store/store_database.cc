#include "server/store/store_database.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/process/log.h"

namespace plumbline::server {

absl::StatusOr<std::unique_ptr<StoreDatabase>> StoreDatabase::Open(const std::string& path,
                                                                   const StoreOrigin& origin) {
  std::unique_ptr<StoreDatabase> store(new StoreDatabase(path));
  {
    const MutexLock lock(store->connection_);
    if (auto s = store->OpenWriter(path.empty() ? ":memory:" : path, origin); !s.ok()) return s;
  }
  if (!store->problem_.empty()) LogWarning("{}", store->problem_);
  return store;
}

absl::Status StoreDatabase::OpenWriter(const std::string& path, const StoreOrigin& origin) {
  auto opened = OpenDatabase(path, origin);
  if (!opened.ok()) return opened.status();
  auto writer = StoreWriter::Create(opened->database.get());
  if (!writer.ok()) return writer.status();
  database_ = std::move(opened->database);
  writer_ = std::move(*writer);
  position_ = opened->position;
  rebuild_ = std::move(opened->rebuild);
  problem_ = std::move(opened->problem);
  return absl::OkStatus();
}

absl::Status StoreDatabase::Write(const std::vector<StoreJob>& jobs, const StoreLimits& limits,
                                  int64_t unix_s) {
  if (damaged_.exchange(false))
    return absl::DataLossError(absl::StrCat(path_, ": a query found that it is damaged"));
  const MutexLock lock(connection_);
  if (auto s = writer_->Write(jobs, unix_s); !s.ok()) return s;
  const absl::Status retained = writer_->Retain(limits, unix_s, &dropped_tiles_);
  // The jobs are written; the limits are tried again with the next ones.
  if (!retained.ok()) LogWarning("the store's limits: {}", std::string(retained.message()));
  return absl::OkStatus();
}

void StoreDatabase::SetAside() {
  if (in_memory()) return;
  const WriterLock file(file_);
  const MutexLock connection(connection_);
  {
    const MutexLock pool(pool_);
    readers_.clear();
  }
  former_tiles_ += writer_->tiles();
  writer_.reset();
  database_.reset();
  const absl::Status aside = SetDatabaseAside(path_);
  set_aside_ = true;
  if (const absl::Status s = OpenWriter(":memory:", {}); !s.ok()) LogCritical("{}", s.ToString());
  problem_ = aside.ok()
                 ? absl::StrCat(path_, ": it was damaged while in use and renamed to ", path_,
                                ".aside; new values are stored in memory, and the next start "
                                "rebuilds the store from the journal")
                 : std::string(aside.message());
  LogError("{}", problem_);
}

uint64_t StoreDatabase::Bytes() const {
  const MutexLock lock(connection_);
  const auto bytes = writer_->Bytes();
  return bytes.ok() ? *bytes : 0;
}

uint64_t StoreDatabase::tiles() const {
  const MutexLock lock(connection_);
  return former_tiles_ + (writer_ ? writer_->tiles() : 0);
}

const Database* StoreDatabase::writer_database() const {
  const MutexLock lock(connection_);
  return database_.get();
}

absl::Status StoreDatabase::ReadShared(const std::function<absl::Status(TileReader*)>& read) {
  const MutexLock lock(connection_);
  auto reader = TileReader::Create(database_.get());
  return reader.ok() ? read(reader->get()) : reader.status();
}

absl::Status StoreDatabase::Read(const std::function<absl::Status(TileReader*)>& read) {
  const ReaderLock lock(file_);
  if (in_memory()) return ReadShared(read);
  auto reader = TakeReader();
  absl::Status status = reader.status();
  if (status.ok()) status = read((*reader)->tiles.get());
  if (status.code() == absl::StatusCode::kDataLoss) damaged_ = true;
  if (!status.ok()) return status;
  const MutexLock pool(pool_);
  readers_.push_back(std::move(*reader));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<StoreDatabase::Reader>> StoreDatabase::TakeReader() {
  {
    const MutexLock lock(pool_);
    if (!readers_.empty()) {
      std::unique_ptr<Reader> reader = std::move(readers_.back());
      readers_.pop_back();
      return reader;
    }
  }
  auto reader = std::make_unique<Reader>();
  auto database = Database::Open(path_, Database::Mode::kReadOnly);
  if (!database.ok()) return database.status();
  reader->database = std::move(*database);
  if (auto s = reader->database->Execute("PRAGMA mmap_size=1073741824; PRAGMA cache_size=-8192;");
      !s.ok()) {
    return s;
  }
  auto tiles = TileReader::Create(reader->database.get());
  if (!tiles.ok()) return tiles.status();
  reader->tiles = std::move(*tiles);
  return reader;
}

}  // namespace plumbline::server
