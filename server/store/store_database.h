// The store's database with its one writer and its readers: connections to a file, or one shared
// database in memory.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/store/schema.h"
#include "server/store/store_writer.h"
#include "server/store/tile_reader.h"

namespace plumbline::server {

// Read is thread-safe; only the writer may call the other functions.
class StoreDatabase {
 public:
  // Opens the database; an empty path: in memory.
  static absl::StatusOr<std::unique_ptr<StoreDatabase>> Open(const std::string& path,
                                                             const StoreOrigin& origin);

  // Writes the jobs, then applies the limits. After an error no part of the jobs is written.
  // Returns DataLoss if the file is damaged; see SetAside.
  absl::Status Write(const std::vector<StoreJob>& jobs, const StoreLimits& limits, int64_t unix_s);

  // Renames the file and continues in memory, so that the next start finds none and rebuilds it.
  void SetAside();

  absl::Status Read(const std::function<absl::Status(TileReader*)>& read);

  const Database* writer_database() const;                 // call before the first Write
  uint64_t position() const { return position_; }          // as of when it was opened
  const std::string& rebuild() const { return rebuild_; }  // as of when it was opened
  const std::string& problem() const { return problem_; }
  // Returns true if the file was damaged while it was in use: nothing written now outlives the
  // process.
  bool set_aside() const { return set_aside_; }
  uint64_t Bytes() const;
  uint64_t tiles() const;
  uint64_t dropped_tiles() const { return dropped_tiles_; }

 private:
  struct Reader {
    std::unique_ptr<Database> database;  // nullptr: the writer's database
    std::unique_ptr<TileReader> tiles;
  };
  explicit StoreDatabase(std::string path) : path_(std::move(path)) {}

  bool in_memory() const { return path_.empty() || set_aside_; }
  absl::Status OpenWriter(const std::string& path, const StoreOrigin& origin)
      PLUMB_REQUIRES(connection_);
  absl::StatusOr<std::unique_ptr<Reader>> TakeReader();
  absl::Status ReadShared(const std::function<absl::Status(TileReader*)>& read);

  const std::string path_;
  std::string problem_, rebuild_;
  uint64_t position_ = 0;
  bool set_aside_ = false;  // changes only with file_ held exclusively
  uint64_t dropped_tiles_ = 0;
  std::atomic<bool> damaged_{false};  // a reader found the file damaged

  SharedMutex file_;  // exclusive while the file is replaced, shared for readers
  // Guards the writer's connection, which only one thread may use at a time: the writer, and
  // readers of a database in memory. Readers of a file have separate connections and never wait for
  // it.
  mutable Mutex connection_;
  uint64_t former_tiles_ PLUMB_GUARDED_BY(connection_) = 0;
  std::unique_ptr<Database> database_ PLUMB_GUARDED_BY(connection_);
  std::unique_ptr<StoreWriter> writer_ PLUMB_GUARDED_BY(connection_);
  Mutex pool_;
  std::vector<std::unique_ptr<Reader>> readers_ PLUMB_GUARDED_BY(pool_);  // not in use
};

}  // namespace plumbline::server
