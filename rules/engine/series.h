// Scalars that travel in columns (v1::SeriesRows): the series of each stream's sets, and the rows
// of a closed step in the form in which they are stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/archive.h"
#include "base/mutex.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::rules {

// One list of series. Streams that declare the same list share it. Immutable.
struct SeriesColumns {
  std::vector<v1::Site> sites;
  std::string key;             // the same for the same sites, on every host and in every process
  std::vector<uint32_t> read;  // columns that some rule reads, ascending
  uint32_t shown = 0;  // the column whose value a run's ending shows (engine/process_ends.h)

  // The key and the columns `read` and `shown` are derived from the sites.
  void Persist(Archive& archive);
};

// One rank's values of one step. Pointers are valid only during the call.
struct SeriesRow {
  uint32_t rank = 0;
  const double* values = nullptr;   // one a column
  const uint8_t* absent = nullptr;  // nullptr: all are present
  size_t first_bit = 0;             // of this row in `absent`

  bool present(size_t column) const {
    if (absent == nullptr) return true;
    const size_t bit = first_bit + column;
    return (absent[bit / 8] >> (bit % 8) & 1) == 0;
  }
};

// All rows of one (run, attempt, role, step) over the same columns, by rank. If a rank sent
// several, they are in the order of sending, and a later value replaces an earlier one.
struct StepSeries {
  std::string_view run;
  uint32_t attempt = 0;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  int64_t step = 0;
  uint32_t world_size = 0;  // 0: unknown
  std::shared_ptr<const SeriesColumns> columns;
  std::span<const SeriesRow> rows;
  bool late = false;     // true if it is one rank's evidence after its step was closed over it
  bool resumed = false;  // the run was forgotten before; it continues and repeats no earlier step
};

// The sets that streams have declared. Thread-safe, except Persist, empty and Clear.
class SeriesSets {
 public:
  // `read` returns true if some rule reads the series.
  explicit SeriesSets(std::function<bool(const v1::Site&)> read) : read_(std::move(read)) {}

  // Returns InvalidArgument if the batch's sets or rows are malformed, or if rows name a set that
  // neither the batch nor an earlier one of its stream declared: "series[0]: set 00000000000000a1
  // was not declared on this stream".
  absl::Status Check(const v1::Batch& batch) const;
  // Takes the batch's declarations. The batch must have passed Check.
  void Declare(const v1::Batch& batch);
  // Returns the set's columns; nullptr if it was not declared.
  std::shared_ptr<const SeriesColumns> Find(uint64_t stream_id, uint64_t set) const;
  // Returns a list of a single series, for scalars that came one by one.
  std::shared_ptr<const SeriesColumns> Single(const v1::Site& site);
  // Records that the stream sends evidence of the run. Returns true if that was already recorded.
  bool NoteRun(uint64_t stream_id, const std::string& run);
  // Forgets the sets and the runs of one stream. A host calls it when it no longer knows the
  // stream. Until then batches of the stream may arrive, even after its run was over.
  void ForgetStream(uint64_t stream_id);
  // Returns the streams whose sets are known, ascending.
  std::vector<uint64_t> Streams() const;
  // Frees lists that no stream and no open step uses any more.
  void Trim();

  // Stores or reads the streams' declarations. lists_ and singles_ are derived; mutex_ guards all
  // of them. The caller has the sets to itself.
  void Persist(Archive& archive) PLUMB_NO_THREAD_SAFETY_ANALYSIS;
  // Returns the shared list with the sites of `read`.
  std::shared_ptr<const SeriesColumns> Known(const SeriesColumns& read) {
    return Intern(read.sites);
  }
  bool empty() const {
    const MutexLock lock(mutex_);
    return streams_.empty();
  }
  void Clear();

 private:
  struct Stream {
    std::map<uint64_t, std::shared_ptr<const SeriesColumns>> sets;
    std::set<std::string> runs;  // runs of which the stream sent evidence, if that is recorded
    void Persist(Archive& a) { a(sets, runs); }
  };
  using Columns = std::shared_ptr<const SeriesColumns>;
  Columns Intern(std::vector<v1::Site> sites);
  std::map<uint64_t, Columns> DeclaredBefore(const v1::Batch& batch) const;

  const std::function<bool(const v1::Site&)> read_;
  mutable Mutex mutex_;  // guards what follows; held for look-ups, never for the length of a list
  std::map<uint64_t, Stream> streams_ PLUMB_GUARDED_BY(mutex_);
  std::map<std::string, std::weak_ptr<const SeriesColumns>> lists_
      PLUMB_GUARDED_BY(mutex_);  // by key
  std::map<std::pair<std::string, std::string>, std::shared_ptr<const SeriesColumns>> singles_
      PLUMB_GUARDED_BY(mutex_);
};

// Returns the number of values in the rows, or in one of them. The rows must have passed
// SeriesSets::Check.
uint64_t CountPresent(const v1::SeriesRows& rows);
uint64_t CountPresent(const v1::SeriesRows& rows, int row);

}  // namespace plumbline::rules
