// Scalars that travel by columns (v1::SeriesRows): which series the sets of a stream hold, and the
// rows of a closed step as they go to whoever stores them.
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
  uint32_t shown = 0;          // the column that tells how the run stands (engine/process_ends.h)

  // The key, what is read and what is shown follow from the sites.
  void Persist(Archive& archive);
};

// One rank's values of one step. Pointers are valid during the call only.
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

// All rows of one (run, attempt, role, step) over the same columns, by rank; a rank that sent
// several has them in the order in which it sent them, and a later value is the newer one.
struct StepSeries {
  std::string_view run;
  uint32_t attempt = 0;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  int64_t step = 0;
  uint32_t world_size = 0;  // 0: unknown
  std::shared_ptr<const SeriesColumns> columns;
  std::span<const SeriesRow> rows;
  bool late = false;     // of one rank, after its step had been closed over it
  bool resumed = false;  // the run was forgotten before: its earlier steps are none that it repeats
};

// The sets that streams have declared. Thread-safe but for Persist, empty and Clear.
class SeriesSets {
 public:
  // `read`: does some rule read this series?
  explicit SeriesSets(std::function<bool(const v1::Site&)> read) : read_(std::move(read)) {}

  // InvalidArgument when the batch's sets or rows are malformed, or rows name a set that neither
  // the batch nor an earlier one of its stream declared: "series[0]: set 00000000000000a1 was not
  // declared on this stream".
  absl::Status Check(const v1::Batch& batch) const;
  // Takes the batch's declarations. It must have passed Check.
  void Declare(const v1::Batch& batch);
  // nullptr: not declared.
  std::shared_ptr<const SeriesColumns> Find(uint64_t stream_id, uint64_t set) const;
  // One list of a single series, for scalars that came one by one.
  std::shared_ptr<const SeriesColumns> Single(const v1::Site& site);
  // Notes that the stream brings evidence of the run. Returns true if it had done so before.
  bool NoteRun(uint64_t stream_id, const std::string& run);
  // Forgets the sets and the runs of one stream. A host calls it when it does not know the stream
  // any more: until then batches of the stream may come, also after its run was over.
  void ForgetStream(uint64_t stream_id);
  // The streams whose sets are known, ascending.
  std::vector<uint64_t> Streams() const;
  // Frees what no stream and no open step uses any more.
  void Trim();

  // What streams declared. lists_ and singles_ are found again; mutex_ guards them all.
  void Persist(Archive& archive) PLUMB_NO_THREAD_SAFETY_ANALYSIS;  // nobody else is at them then
  // The list of these sites as it is known here; of one that was read.
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
    std::set<std::string> runs;  // of which it brought evidence, where that is noted
    void Persist(Archive& a) { a(sets, runs); }
  };
  using Columns = std::shared_ptr<const SeriesColumns>;
  Columns Intern(std::vector<v1::Site> sites);
  std::map<uint64_t, Columns> DeclaredBefore(const v1::Batch& batch) const;

  const std::function<bool(const v1::Site&)> read_;
  mutable Mutex mutex_;  // guards what follows; held for look-ups, never for a list's length
  std::map<uint64_t, Stream> streams_ PLUMB_GUARDED_BY(mutex_);
  std::map<std::string, std::weak_ptr<const SeriesColumns>> lists_
      PLUMB_GUARDED_BY(mutex_);  // by key
  std::map<std::pair<std::string, std::string>, std::shared_ptr<const SeriesColumns>> singles_
      PLUMB_GUARDED_BY(mutex_);
};

// How many values the rows hold, or one of them; of rows that SeriesSets::Check accepts.
uint64_t CountPresent(const v1::SeriesRows& rows);
uint64_t CountPresent(const v1::SeriesRows& rows, int row);

}  // namespace plumbline::rules
