// Reads SQLite databases of trackers: MLflow (one row per value) and trackio (one row per step, its
// values as JSON). Opens them read-only.
#include <sqlite3.h>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "audit/readers/input/file.h"
#include "audit/readers/scalars/json_record.h"
#include "audit/readers/scalars/point_file.h"
#include "audit/readers/scalars/text_file.h"
#include "audit/readers/settings/plain_config.h"

namespace plumbline::audit {
namespace {

constexpr std::string_view kSqliteHead = "SQLite format 3";

struct CloseDatabase {
  void operator()(sqlite3* database) const { sqlite3_close(database); }
};
struct EndStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;
using Statement = std::unique_ptr<sqlite3_stmt, EndStatement>;

Database OpenDatabase(const std::string& path) {
  sqlite3* raw = nullptr;
  const int status = sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READONLY, nullptr);
  Database database(raw);
  return status == SQLITE_OK ? std::move(database) : nullptr;
}

Statement Prepare(sqlite3* database, const char* sql) {
  sqlite3_stmt* raw = nullptr;
  if (sqlite3_prepare_v2(database, sql, -1, &raw, nullptr) != SQLITE_OK) raw = nullptr;
  return Statement(raw);
}

std::string_view TextOf(sqlite3_stmt* row, int column) {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(row, column));
  return text == nullptr
             ? std::string_view()
             : std::string_view(text, static_cast<size_t>(sqlite3_column_bytes(row, column)));
}

// The queries of each tracker: rows of run, step, then the values. If a query fails, the database
// is another tracker's.
struct Tracker {
  const char* runs;  // counts the runs
  const char* rows;
  // Query for the run, then a name and a value, or (if `json`) all values; may be absent.
  const char* settings;
  bool json;  // true if a row has all values of its step
};
constexpr Tracker kTrackers[] = {
    {"SELECT COUNT(DISTINCT run_uuid) FROM metrics",
     "SELECT run_uuid, step, key, value, is_nan FROM metrics ORDER BY run_uuid, key, step, "
     "timestamp",
     "SELECT run_uuid, key, value FROM params WHERE run_uuid IN (SELECT run_uuid FROM metrics)",
     false},
    {"SELECT COUNT(DISTINCT run_name) FROM metrics",
     "SELECT run_name, step, metrics FROM metrics ORDER BY run_name, step, id",
     "SELECT run_name, config FROM configs", true},
};

const Tracker* TrackerOf(sqlite3* database) {
  for (const Tracker& tracker : kTrackers) {
    if (Prepare(database, tracker.rows) != nullptr) return &tracker;
  }
  return nullptr;
}

class DatabaseFile : public PointFile, private JsonRecord::Taker {
 public:
  DatabaseFile(InputReport* report, Database database, const Tracker* tracker)
      : report_(report), database_(std::move(database)), tracker_(tracker) {
    const absl::StatusOr<InputFile> file = InputFile::Open(report->path);
    if (file.ok()) bytes_ = file->size();
  }

  bool Read(PointSink* sink) override {
    constexpr size_t kRowsAtOnce = 4096;
    if (done_) return false;
    sink_ = sink;
    if (rows_ == nullptr && !Begin()) return false;
    for (size_t i = 0; i < kRowsAtOnce; ++i) {
      const int status = sqlite3_step(rows_.get());
      if (status != SQLITE_ROW) {
        if (status != SQLITE_DONE)
          report_->Add(0, std::string("expected rows of metrics, found: ") +
                              sqlite3_errmsg(database_.get()));
        done_ = true;
        return false;
      }
      TakeRow();
    }
    return true;
  }

  uint64_t bytes_read() const override { return done_ ? bytes_ : 0; }

  void Close(PointSink* sink) override {
    while (Read(sink)) {
    }
    if (damaged_ > 0)
      report_->Add(0, "expected JSON in each row of metrics, found " + std::to_string(damaged_) +
                          " rows with other content");
    if (numbered_ > 0)
      report_->Note("expected a step with each point, found " + std::to_string(numbered_) +
                    " more points with step 0: points of a series are numbered from 0");
    if (runs_ > 1)
      report_->Note("it holds " + std::to_string(runs_) +
                    " runs: the name of the run precedes the names of its series");
  }

 private:
  bool Begin() {
    const Statement count = Prepare(database_.get(), tracker_->runs);
    if (count != nullptr && sqlite3_step(count.get()) == SQLITE_ROW)
      runs_ = sqlite3_column_int64(count.get(), 0);
    TakeSettings();
    rows_ = Prepare(database_.get(), tracker_->rows);
    done_ = rows_ == nullptr;
    return !done_;
  }

  std::string PrefixOf(std::string_view run) const { return runs_ > 1 ? PlainName(run) + "/" : ""; }

  void TakeSettings() {
    const Statement rows = Prepare(database_.get(), tracker_->settings);
    while (rows != nullptr && sqlite3_step(rows.get()) == SQLITE_ROW) {
      const std::string prefix = PrefixOf(TextOf(rows.get(), 0));
      const std::string_view first = TextOf(rows.get(), 1);
      if (tracker_->json) {
        AddJsonConfig(first, prefix, &report_->settings);
      } else {
        AddConfig(prefix + std::string(first), TextOf(rows.get(), 2), &report_->settings);
      }
    }
  }

  void TakeRow() {
    sqlite3_stmt* row = rows_.get();
    const std::string_view run = TextOf(row, 0);
    if (report_->records++ == 0 && runs_ == 1) sink_->Belongs(PlainName(run), -1);
    step_ = sqlite3_column_int64(row, 1);
    prefix_ = PrefixOf(run);
    if (tracker_->json) {
      const std::string text(TextOf(row, 2));
      JsonCursor cursor(text);
      JsonShape shape;
      if (!record_.Read(&cursor, text, this, &shape)) ++damaged_;
      return;
    }
    const bool nan = sqlite3_column_int64(row, 4) != 0;
    double value = sqlite3_column_double(row, 3);
    // MLflow stores infinities as the largest double.
    if (std::fabs(value) >= std::numeric_limits<double>::max())
      value = std::copysign(std::numeric_limits<double>::infinity(), value);
    const std::string_view key = TextOf(row, 2);
    // If a trainer passes no step, MLflow writes step 0 each time. Rows are ordered by run and key.
    const bool same = series_ == prefix_ + std::string(key);
    if (!same) series_ = prefix_ + std::string(key);
    zeros_ = same ? zeros_ + 1 : 0;
    if (step_ == 0 && zeros_ > 0) {
      step_ = zeros_;
      ++numbered_;
    }
    Take(key, nan ? std::numeric_limits<double>::quiet_NaN() : value);
  }

  void Take(std::string_view name, double value) override {
    sink_->Add(step_, sink_->Column(PlainName(prefix_ + std::string(name))), value);
  }

  InputReport* report_;
  Database database_;
  const Tracker* tracker_;
  Statement rows_;
  JsonRecord record_;
  PointSink* sink_ = nullptr;
  int64_t step_ = 0, runs_ = 0;
  std::string prefix_;
  std::string series_;     // series of the preceding row
  int64_t zeros_ = 0;      // number of rows of that series so far
  uint64_t numbered_ = 0;  // number of rows with step 0 that got their row number as step
  uint64_t damaged_ = 0, bytes_ = 0;
  bool done_ = false;
};

bool IsDatabase(std::string_view path, std::string_view head) {
  if (!head.starts_with(kSqliteHead)) return false;
  const Database database = OpenDatabase(std::string(path));
  return database != nullptr && TrackerOf(database.get()) != nullptr;
}

std::unique_ptr<PointFile> OpenTrackerDatabase(InputReport* report,
                                               const ScalarOptions& /*options*/) {
  Database database = OpenDatabase(report->path);
  const Tracker* tracker = database == nullptr ? nullptr : TrackerOf(database.get());
  if (tracker == nullptr) {
    report->Add(0, "expected the database of a tracker (MLflow, trackio), found another file");
    return nullptr;
  }
  return std::make_unique<DatabaseFile>(report, std::move(database), tracker);
}

}  // namespace

const PointFormat& DatabaseFormat() {
  static constexpr PointFormat kFormat = {"tracker-database", IsDatabase, OpenTrackerDatabase};
  return kFormat;
}

}  // namespace plumbline::audit
