// A thin wrapper of SQLite with the functions that the store needs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct sqlite3;
struct sqlite3_stmt;

namespace plumbline::server {

class Database;

// A prepared statement. Binding counts from 1, columns from 0. Not thread-safe.
class Statement {
 public:
  Statement() = default;
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&& other) noexcept;
  ~Statement();

  Statement& Bind(int index, int64_t value);
  Statement& Bind(int index, uint64_t value) { return Bind(index, static_cast<int64_t>(value)); }
  Statement& Bind(int index, uint32_t value) { return Bind(index, static_cast<int64_t>(value)); }
  Statement& Bind(int index, int value) { return Bind(index, static_cast<int64_t>(value)); }
  // The bytes must stay valid until the statement has run.
  Statement& BindText(int index, std::string_view text);
  Statement& BindBlob(int index, std::string_view bytes);

  // Steps to the next row; returns false if there is none. Runs again after Reset.
  absl::StatusOr<bool> Next();
  // Runs a statement without rows, then resets it.
  absl::Status Run();
  void Reset();

  int64_t Int(int column) const;
  uint64_t Unsigned(int column) const { return static_cast<uint64_t>(Int(column)); }
  // Valid until the next call of Next, Run or Reset.
  std::string_view Bytes(int column) const;

 private:
  friend class Database;
  const Database* database_ = nullptr;
  sqlite3_stmt* statement_ = nullptr;
};

// One connection. Not thread-safe. Errors name the path: DataLoss if the file is damaged or not a
// database, ResourceExhausted if it could not be written, otherwise Internal.
class Database {
 public:
  enum class Mode { kReadWrite, kReadOnly };

  // Opens a database. ":memory:" is a separate database that ends with the object. A writer keeps
  // the emptied log files (-wal, -shm) on close, so that a full disk does not prevent opening it
  // again.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path, Mode mode);
  ~Database();

  absl::Status Execute(const std::string& sql);
  absl::StatusOr<Statement> Prepare(const std::string& sql) const;
  absl::StatusOr<int64_t> Number(
      const std::string& sql) const;  // returns the first column; 0 without a row

  // Writes everything committed so far into the new file `path`, then checks the copy
  // (integrity_check). Others may write to this database meanwhile. Returns DataLoss if this
  // database, or the copy, is damaged.
  absl::Status CopyTo(const std::string& path) const;

  const std::string& path() const { return path_; }
  absl::Status Error(int code) const;

 private:
  Database(std::string path, Mode mode) : path_(std::move(path)), mode_(mode) {}

  const std::string path_;
  const Mode mode_;
  sqlite3* handle_ = nullptr;
};

}  // namespace plumbline::server
