#include "server/alerts/alert_log.h"

#include "absl/strings/str_cat.h"
#include "server/process/log.h"
#include "server/store/schema.h"

namespace plumbline::server {
namespace {

constexpr int kSchema = 2;

// FULL: a delivered alert is not delivered again after a power failure of the host.
constexpr const char* kSettings = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;";

// state: AlertDelivery::State.
constexpr const char* kTables = R"(
CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sent(
  route TEXT NOT NULL, fingerprint TEXT NOT NULL, firing INTEGER NOT NULL, quiet INTEGER NOT NULL,
  level INTEGER NOT NULL, revision INTEGER NOT NULL, who TEXT NOT NULL, reason TEXT NOT NULL,
  body TEXT NOT NULL, PRIMARY KEY(route, fingerprint)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS alerts(
  row INTEGER PRIMARY KEY, route TEXT NOT NULL, id TEXT NOT NULL, fingerprint TEXT NOT NULL,
  revision INTEGER NOT NULL, event TEXT NOT NULL, body TEXT NOT NULL, state INTEGER NOT NULL,
  tries INTEGER NOT NULL, decided_ns INTEGER NOT NULL, done_ns INTEGER NOT NULL,
  problem TEXT NOT NULL, UNIQUE(route, id));
CREATE INDEX IF NOT EXISTS alerts_waiting ON alerts(route, row) WHERE state=0;
CREATE INDEX IF NOT EXISTS alerts_held ON alerts(route, row) WHERE state=3;
CREATE INDEX IF NOT EXISTS alerts_of ON alerts(fingerprint, row);
)";

// From schema 1 to 2, in one transaction.
constexpr const char* kFromSchema1 =
    "BEGIN IMMEDIATE;"
    "ALTER TABLE told RENAME TO sent;"  // former name
    "PRAGMA user_version=2; COMMIT";

absl::StatusOr<std::unique_ptr<Database>> TryOpen(const std::string& path) {
  auto database = Database::Open(path, Database::Mode::kReadWrite);
  if (!database.ok()) return database.status();
  if (auto s = (*database)->Execute(kSettings); !s.ok()) return s;
  const auto version = (*database)->Number("PRAGMA user_version");
  if (!version.ok()) return version.status();
  if (*version < 0 || *version > kSchema)
    return absl::DataLossError(
        absl::StrCat(path, ": expected alerts of schema ", kSchema, ", found ", *version));
  if (*version == 1) {
    if (auto s = (*database)->Execute(kFromSchema1); !s.ok()) return s;
  }
  if (auto s = (*database)->Execute(kTables); !s.ok()) return s;
  // Existing values are not written again, so that a full disk does not keep a server from
  // starting.
  if (*version != 0) return database;
  if (auto s = (*database)->Execute(absl::StrCat("PRAGMA user_version=", kSchema)); !s.ok())
    return s;
  return database;
}

std::string Copy(const Statement& s, int column) { return std::string(s.Bytes(column)); }

Notification NotificationOf(const Statement& s, int first) {
  Notification n;
  n.id = Copy(s, first);
  n.fingerprint = Copy(s, first + 1);
  n.revision = s.Unsigned(first + 2);
  n.event = EventOf(Copy(s, first + 3));
  n.body = Copy(s, first + 4);
  return n;
}

// Calls `row` for each row of a bound statement.
absl::Status Each(Statement* s, const std::function<void()>& row) {
  for (;;) {
    const auto more = s->Next();
    if (!more.ok() || !*more) {
      s->Reset();
      return more.status();
    }
    row();
  }
}

}  // namespace

const char* StateWord(AlertDelivery::State state) {
  constexpr const char* kWords[] = {"waiting", "delivered", "given up", "held back", "summarised"};
  const auto i = static_cast<size_t>(state);
  return i < std::size(kWords) ? kWords[i] : "unknown";
}

absl::StatusOr<std::unique_ptr<AlertLog>> AlertLog::Open(const std::string& path) {
  auto database = TryOpen(path.empty() ? ":memory:" : path);
  if (!path.empty() && database.status().code() == absl::StatusCode::kDataLoss) {
    LogError("{}; it is renamed to {}.aside, and open incidents are notified again",
             std::string(database.status().message()), path);
    if (auto s = SetDatabaseAside(path); !s.ok()) return s;
    database = TryOpen(path);
  }
  if (!database.ok()) return database.status();
  std::unique_ptr<AlertLog> log(new AlertLog(std::move(*database)));
  {
    const MutexLock lock(log->mutex_);
    if (auto s = log->Prepare(); !s.ok()) return s;
  }
  return log;
}

absl::Status AlertLog::Prepare() {
  const struct {
    Statement* statement;
    const char* sql;
  } all[] = {
      {&all_reported_,
       "SELECT route, fingerprint, firing, quiet, level, revision, who, reason, body FROM sent"},
      {&put_reported_, "INSERT OR REPLACE INTO sent VALUES(?,?,?,?,?,?,?,?,?)"},
      {&insert_,
       "INSERT OR IGNORE INTO alerts(route, id, fingerprint, revision, event, body, state, tries,"
       " decided_ns, done_ns, problem) VALUES(?,?,?,?,?,?,0,0,?,0,'')"},
      {&next_,
       "SELECT id, fingerprint, revision, event, body, row, decided_ns, tries FROM alerts"
       " WHERE route=? AND state=0 ORDER BY row LIMIT 1"},
      {&tried_, "UPDATE alerts SET tries=tries+1, problem=? WHERE row=?"},
      {&done_, "UPDATE alerts SET state=?, done_ns=?, problem=?, tries=tries+1 WHERE row=?"},
      {&hold_, "UPDATE alerts SET state=3 WHERE route=? AND state=0"},
      {&held_,
       "SELECT id, fingerprint, revision, event, body FROM alerts WHERE route=? AND state=3"
       " ORDER BY row"},
      {&summarised_, "UPDATE alerts SET state=4, done_ns=? WHERE route=? AND state=3"},
      {&open_, "SELECT fingerprint, body, quiet, who, reason FROM sent WHERE route=? AND firing=1"},
      {&waiting_, "SELECT count(*), min(decided_ns) FROM alerts WHERE route=? AND state=0"},
      {&history_,
       "SELECT route, event, revision, state, tries, decided_ns, done_ns, problem FROM alerts"
       " WHERE fingerprint=? ORDER BY row"},
      {&put_meta_, "INSERT OR REPLACE INTO meta VALUES(?,?)"},
      {&get_meta_, "SELECT value FROM meta WHERE key=?"},
      {&unfinished_, "SELECT DISTINCT route FROM alerts WHERE state IN (0,3)"},
      {&give_up_,
       "UPDATE alerts SET state=2, done_ns=?, problem='the route is no longer configured' WHERE "
       "route=? AND state IN (0,3)"},
      {&retain_, "DELETE FROM alerts WHERE state IN (1,2,4) AND done_ns<?"},
  };
  for (const auto& one : all) {
    auto prepared = database_->Prepare(one.sql);
    if (!prepared.ok()) return prepared.status();
    *one.statement = std::move(*prepared);
  }
  return absl::OkStatus();
}

absl::Status AlertLog::InTransaction(const std::function<absl::Status()>& work) {
  if (auto s = database_->Execute("BEGIN IMMEDIATE"); !s.ok()) return s;
  absl::Status status = work();
  if (status.ok()) status = database_->Execute("COMMIT");
  if (!status.ok()) database_->Execute("ROLLBACK").IgnoreError();
  return status;
}

absl::StatusOr<std::map<AlertLog::ReportedKey, ReceiverState>> AlertLog::AllReported() {
  const MutexLock lock(mutex_);
  std::map<ReportedKey, ReceiverState> all;
  const absl::Status status = Each(&all_reported_, [&]() PLUMB_REQUIRES(mutex_) {
    ReceiverState& reported = all[{Copy(all_reported_, 0), Copy(all_reported_, 1)}];
    reported.firing = all_reported_.Int(2) != 0;
    reported.quiet = all_reported_.Int(3) != 0;
    reported.level = static_cast<v1::Level>(all_reported_.Int(4));
    reported.revision = all_reported_.Unsigned(5);
    reported.who = Copy(all_reported_, 6);
    reported.reason = Copy(all_reported_, 7);
    reported.body = Copy(all_reported_, 8);
  });
  if (!status.ok()) return status;
  return all;
}

absl::StatusOr<std::pair<std::string, uint64_t>> AlertLog::Position() {
  const MutexLock lock(mutex_);
  std::pair<std::string, uint64_t> out;
  if (auto s = Each(&get_meta_.BindText(1, "book"),
                    [&]() PLUMB_REQUIRES(mutex_) { out.first = Copy(get_meta_, 0); });
      !s.ok()) {
    return s;
  }
  if (auto s = Each(&get_meta_.BindText(1, "position"),
                    [&]() PLUMB_REQUIRES(mutex_) { out.second = get_meta_.Unsigned(0); });
      !s.ok()) {
    return s;
  }
  return out;
}

absl::Status AlertLog::Insert(const std::string& route, const Notification& n, int64_t unix_ns) {
  return insert_.BindText(1, route)
      .BindText(2, n.id)
      .BindText(3, n.fingerprint)
      .Bind(4, n.revision)
      .BindText(5, EventWord(n.event))
      .BindText(6, n.body)
      .Bind(7, unix_ns)
      .Run();
}

absl::Status AlertLog::Put(const AlertDecision& d, int64_t unix_ns) {
  if (d.notification) {
    if (auto s = Insert(d.route, *d.notification, unix_ns); !s.ok()) return s;
  }
  return put_reported_.BindText(1, d.route)
      .BindText(2, d.fingerprint)
      .Bind(3, d.reported.firing ? 1 : 0)
      .Bind(4, d.reported.quiet ? 1 : 0)
      .Bind(5, static_cast<int>(d.reported.level))
      .Bind(6, d.reported.revision)
      .BindText(7, d.reported.who)
      .BindText(8, d.reported.reason)
      .BindText(9, d.reported.body)
      .Run();
}

absl::Status AlertLog::Keep(const std::vector<AlertDecision>& decisions,
                            const std::string& incident_table, uint64_t position, int64_t unix_ns) {
  const MutexLock lock(mutex_);
  return InTransaction([&]() PLUMB_REQUIRES(mutex_) {
    for (const AlertDecision& d : decisions) {
      if (auto s = Put(d, unix_ns); !s.ok()) return s;
    }
    if (auto s = put_meta_.BindText(1, "book").BindText(2, incident_table).Run(); !s.ok()) return s;
    return put_meta_.BindText(1, "position").Bind(2, position).Run();
  });
}

absl::Status AlertLog::Forget() {
  const MutexLock lock(mutex_);
  return InTransaction([&]() PLUMB_REQUIRES(mutex_) {
    return database_->Execute("DELETE FROM sent; DELETE FROM meta");
  });
}

absl::StatusOr<std::optional<WaitingAlert>> AlertLog::NextWaiting(const std::string& route) {
  const MutexLock lock(mutex_);
  std::optional<WaitingAlert> out;
  const absl::Status status = Each(&next_.BindText(1, route), [&]() PLUMB_REQUIRES(mutex_) {
    out.emplace();
    out->notification = NotificationOf(next_, 0);
    out->row = next_.Int(5);
    out->decided_unix_ns = next_.Int(6);
    out->tries = static_cast<uint32_t>(next_.Int(7));
  });
  if (!status.ok()) return status;
  return out;
}

absl::Status AlertLog::Tried(int64_t row, const std::string& problem) {
  const MutexLock lock(mutex_);
  return tried_.BindText(1, problem).Bind(2, row).Run();
}

absl::Status AlertLog::Done(int64_t row, AlertDelivery::State state, int64_t unix_ns,
                            const std::string& problem) {
  const MutexLock lock(mutex_);
  return done_.Bind(1, static_cast<int>(state))
      .Bind(2, unix_ns)
      .BindText(3, problem)
      .Bind(4, row)
      .Run();
}

absl::StatusOr<uint64_t> AlertLog::HoldBack(const std::string& route) {
  const MutexLock lock(mutex_);
  if (auto s = hold_.BindText(1, route).Run(); !s.ok()) return s;
  const auto changed = database_->Number("SELECT changes()");
  if (!changed.ok()) return changed.status();
  return static_cast<uint64_t>(*changed);
}

absl::StatusOr<std::vector<Notification>> AlertLog::HeldBack(const std::string& route) {
  const MutexLock lock(mutex_);
  std::vector<Notification> out;
  const absl::Status status = Each(&held_.BindText(1, route), [&]() PLUMB_REQUIRES(mutex_) {
    out.push_back(NotificationOf(held_, 0));
  });
  if (!status.ok()) return status;
  return out;
}

absl::Status AlertLog::Summarise(const std::string& route, const Notification& summary,
                                 int64_t unix_ns) {
  const MutexLock lock(mutex_);
  return InTransaction([&]() PLUMB_REQUIRES(mutex_) {
    if (auto s = summarised_.Bind(1, unix_ns).BindText(2, route).Run(); !s.ok()) return s;
    return Insert(route, summary, unix_ns);
  });
}

absl::StatusOr<std::vector<OpenAlert>> AlertLog::OpenOf(const std::string& route) {
  const MutexLock lock(mutex_);
  std::vector<OpenAlert> out;
  const absl::Status status = Each(&open_.BindText(1, route), [&]() PLUMB_REQUIRES(mutex_) {
    out.push_back(
        {Copy(open_, 0), Copy(open_, 1), open_.Int(2) != 0, Copy(open_, 3), Copy(open_, 4)});
  });
  if (!status.ok()) return status;
  return out;
}

absl::StatusOr<AlertLog::Waiting> AlertLog::WaitingOf(const std::string& route) {
  const MutexLock lock(mutex_);
  Waiting out;
  const absl::Status status = Each(&waiting_.BindText(1, route), [&]() PLUMB_REQUIRES(mutex_) {
    out.count = waiting_.Unsigned(0);
    out.oldest_unix_ns = waiting_.Int(1);
  });
  if (!status.ok()) return status;
  return out;
}

absl::StatusOr<std::vector<AlertDelivery>> AlertLog::History(const std::string& fingerprint) {
  const MutexLock lock(mutex_);
  std::vector<AlertDelivery> out;
  const absl::Status status =
      Each(&history_.BindText(1, fingerprint), [&]() PLUMB_REQUIRES(mutex_) {
        AlertDelivery& d = out.emplace_back();
        d.route = Copy(history_, 0);
        d.event = EventOf(Copy(history_, 1));
        d.revision = history_.Unsigned(2);
        d.state = static_cast<AlertDelivery::State>(history_.Int(3));
        d.tries = static_cast<uint32_t>(history_.Int(4));
        d.decided_unix_ns = history_.Int(5);
        d.done_unix_ns = history_.Int(6);
        d.problem = Copy(history_, 7);
      });
  if (!status.ok()) return status;
  return out;
}

absl::Status AlertLog::GiveUpOthers(const std::set<std::string>& routes, int64_t unix_ns) {
  const MutexLock lock(mutex_);
  std::set<std::string> gone;
  absl::Status listed = Each(&unfinished_, [&]() PLUMB_REQUIRES(mutex_) {
    if (!routes.contains(Copy(unfinished_, 0))) gone.insert(Copy(unfinished_, 0));
  });
  if (!listed.ok()) return listed;
  for (const std::string& route : gone) {
    LogWarning("alerts: route {:?} is no longer configured: its pending notifications are dropped",
               route);
    if (auto s = give_up_.Bind(1, unix_ns).BindText(2, route).Run(); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status AlertLog::Retain(int64_t before_unix_ns) {
  const MutexLock lock(mutex_);
  return retain_.Bind(1, before_unix_ns).Run();
}

}  // namespace plumbline::server
