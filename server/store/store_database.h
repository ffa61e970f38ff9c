// The store's database with its one writer and its readers: connections to a file, or one database
// in memory that they share.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/schema.h"
#include "server/store/store_writer.h"
#include "server/store/tile_reader.h"

namespace plumbline::server {

// Read is thread-safe; all else is the writer's.
class StoreDatabase {
 public:
  // An empty path: in memory.
  static absl::StatusOr<std::unique_ptr<StoreDatabase>> Open(const std::string& path,
                                                             const StoreOrigin& origin);

  // The jobs, then what the limits take. After an error nothing of the jobs is there. DataLoss: the
  // file is damaged; see SetAside.
  absl::Status Write(const std::vector<StoreJob>& jobs, const StoreLimits& limits, int64_t unix_s);

  // Renames the file and goes on in memory, so that the next start finds none and rebuilds it.
  void SetAside();

  absl::Status Read(const std::function<absl::Status(TileReader*)>& read);

  const Database* writer_database() const { return database_.get(); }
  uint64_t position() const { return position_; }  // when it was opened
  const std::string& problem() const { return problem_; }
  // The file was damaged while it was in use: nothing that is written now outlives the process.
  bool set_aside() const { return set_aside_; }
  uint64_t Bytes() const;
  uint64_t tiles() const { return former_tiles_ + (writer_ ? writer_->tiles() : 0); }
  uint64_t dropped_tiles() const { return dropped_tiles_; }

 private:
  struct Reader {
    std::unique_ptr<Database> database;  // nullptr: the writer's
    std::unique_ptr<TileReader> tiles;
  };
  explicit StoreDatabase(std::string path) : path_(std::move(path)) {}

  bool in_memory() const { return path_.empty() || set_aside_; }
  absl::Status OpenWriter(const std::string& path, const StoreOrigin& origin);
  absl::StatusOr<std::unique_ptr<Reader>> TakeReader();
  absl::Status ReadShared(const std::function<absl::Status(TileReader*)>& read);

  const std::string path_;
  std::string problem_;
  uint64_t position_ = 0;
  bool set_aside_ = false;
  uint64_t dropped_tiles_ = 0, former_tiles_ = 0;
  std::atomic<bool> damaged_{false};  // a reader met it

  std::shared_mutex file_;  // exclusive while the file is exchanged
  std::mutex connection_;   // the writer's connection, where readers share it
  std::unique_ptr<Database> database_;
  std::unique_ptr<StoreWriter> writer_;
  std::mutex pool_;
  std::vector<std::unique_ptr<Reader>> readers_;  // that nobody uses now
};

}  // namespace plumbline::server
