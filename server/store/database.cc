#include "server/store/database.h"

#include <sqlite3.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace plumbline::server {

Statement::Statement(Statement&& other) noexcept
    : database_(other.database_), statement_(std::exchange(other.statement_, nullptr)) {}

Statement& Statement::operator=(Statement&& other) noexcept {
  std::swap(database_, other.database_);
  std::swap(statement_, other.statement_);
  return *this;
}

Statement::~Statement() { sqlite3_finalize(statement_); }

Statement& Statement::Bind(int index, int64_t value) {
  sqlite3_bind_int64(statement_, index, value);
  return *this;
}

Statement& Statement::BindText(int index, std::string_view text) {
  sqlite3_bind_text64(statement_, index, text.data() != nullptr ? text.data() : "", text.size(),
                      SQLITE_STATIC, SQLITE_UTF8);
  return *this;
}

Statement& Statement::BindBlob(int index, std::string_view bytes) {
  sqlite3_bind_blob64(statement_, index, bytes.data() != nullptr ? bytes.data() : "", bytes.size(),
                      SQLITE_STATIC);
  return *this;
}

absl::StatusOr<bool> Statement::Next() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  const absl::Status error = database_->Error(code);
  sqlite3_reset(statement_);
  return error;
}

absl::Status Statement::Run() {
  const auto row = Next();
  Reset();
  return row.status();
}

void Statement::Reset() { sqlite3_reset(statement_); }

int64_t Statement::Int(int column) const { return sqlite3_column_int64(statement_, column); }

std::string_view Statement::Bytes(int column) const {
  const void* bytes = sqlite3_column_blob(statement_, column);
  const auto size = static_cast<size_t>(sqlite3_column_bytes(statement_, column));
  return bytes == nullptr ? std::string_view()
                          : std::string_view(static_cast<const char*>(bytes), size);
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(const std::string& path, Mode mode) {
  std::unique_ptr<Database> database(new Database(path, mode));
  // NOMUTEX: only one thread at a time uses each connection.
  const int flags =
      SQLITE_OPEN_NOMUTEX |
      (mode == Mode::kReadOnly ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  const int code = sqlite3_open_v2(path.c_str(), &database->handle_, flags, nullptr);
  if (code != SQLITE_OK) return database->Error(code);
  sqlite3_extended_result_codes(database->handle_, 1);
  sqlite3_busy_timeout(database->handle_, 5000);
  int keep_log = 1;  // an in-memory database has no log and returns an error
  if (mode == Mode::kReadWrite)
    sqlite3_file_control(database->handle_, "main", SQLITE_FCNTL_PERSIST_WAL, &keep_log);
  return database;
}

// An empty log fits any database, also one that was restored from a copy. close_v2 waits for
// statements that outlive the connection.
Database::~Database() {
  if (mode_ == Mode::kReadWrite) Execute("PRAGMA wal_checkpoint(TRUNCATE)").IgnoreError();
  sqlite3_close_v2(handle_);
}

absl::Status Database::Error(int code) const {
  const std::string message = absl::StrCat(
      path_, ": ", handle_ != nullptr ? sqlite3_errmsg(handle_) : sqlite3_errstr(code));
  switch (code & 0xFF) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(message);
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::Status Database::Execute(const std::string& sql) {
  const int code = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Error(code);
}

absl::StatusOr<Statement> Database::Prepare(const std::string& sql) const {
  Statement statement;
  statement.database_ = this;
  const int code = sqlite3_prepare_v3(handle_, sql.c_str(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &statement.statement_, nullptr);
  if (code != SQLITE_OK) return Error(code);
  return statement;
}

absl::StatusOr<int64_t> Database::Number(const std::string& sql) const {
  auto statement = Prepare(sql);
  if (!statement.ok()) return statement.status();
  const auto row = statement->Next();
  if (!row.ok()) return row.status();
  return *row ? statement->Int(0) : 0;
}

// Copies in one step: if there were several, each write of another process would restart the copy.
absl::Status Database::CopyTo(const std::string& path) const {
  auto copy = Open(path, Mode::kReadWrite);
  if (!copy.ok()) return copy.status();
  int keep_log = 0;  // the copy is one file, without companion files
  sqlite3_file_control((*copy)->handle_, "main", SQLITE_FCNTL_PERSIST_WAL, &keep_log);
  sqlite3_backup* backup = sqlite3_backup_init((*copy)->handle_, "main", handle_, "main");
  if (backup == nullptr) return (*copy)->Error(sqlite3_errcode((*copy)->handle_));
  const int stepped = sqlite3_backup_step(backup, -1);
  const int finished = sqlite3_backup_finish(backup);
  if (const int code = stepped != SQLITE_DONE ? stepped : finished; code != SQLITE_OK) {
    const bool damaged = (code & 0xFF) == SQLITE_CORRUPT || (code & 0xFF) == SQLITE_NOTADB;
    if (damaged) return absl::DataLossError(absl::StrCat(path_, ": ", sqlite3_errstr(code)));
    return (*copy)->Error(code);
  }
  auto check = (*copy)->Prepare("PRAGMA integrity_check(1)");
  if (!check.ok()) return check.status();
  const auto row = check->Next();
  if (!row.ok()) return row.status();
  const std::string found(*row ? check->Bytes(0) : "nothing");
  if (found == "ok") return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(path_, ": expected an intact database, found in its copy: ", found));
}

}  // namespace plumbline::server
