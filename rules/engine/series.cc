#include "rules/engine/series.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "analysis/frame/frame.h"
#include "rules/engine/process_ends.h"

namespace plumbline::rules {
namespace {

// Lengths come first, so that no name of a series can imitate another list.
std::string KeyOf(const std::vector<v1::Site>& sites) {
  std::string key;
  for (const v1::Site& site : sites) {
    absl::StrAppend(&key, site.layer().size(), ":", site.layer(), site.op().size(), ":", site.op());
  }
  return key;
}

bool SameSites(const std::vector<v1::Site>& a, const v1::SeriesSet& b) {
  return std::equal(a.begin(), a.end(), b.sites().begin(), b.sites().end(),
                    [](const v1::Site& x, const v1::Site& y) {
                      return x.layer() == y.layer() && x.op() == y.op();
                    });
}

std::string SetName(uint64_t id) { return absl::StrCat("set ", absl::Hex(id, absl::kZeroPad16)); }

absl::Status At(const char* field, int index, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat(field, "[", index, "]: ", std::string(status.message())));
}

absl::Status CheckSeriesSet(const v1::SeriesSet& set) {
  if (set.id() == 0) return absl::InvalidArgumentError("expected a set id that is not 0");
  if (set.sites().empty())
    return absl::InvalidArgumentError(absl::StrCat(SetName(set.id()), ": expected a series"));
  for (const v1::Site& site : set.sites()) {
    if (site.layer().empty() && site.op().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(SetName(set.id()), ": expected series with a layer or an op"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSeriesRows(const v1::SeriesRows& rows, size_t columns, size_t sources) {
  const auto count = static_cast<size_t>(rows.step_size());
  const auto values = static_cast<size_t>(rows.value_size());
  if (rows.source_size() != 1 && static_cast<size_t>(rows.source_size()) != count) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected one source or ", count, ", found ", rows.source_size()));
  }
  if (columns == 0 || values % columns != 0 || values / columns != count) {
    return absl::InvalidArgumentError(absl::StrCat("expected values for ", count, " rows of ",
                                                   columns, " columns, found ", values));
  }
  if (!rows.absent().empty() && rows.absent().size() != (values + 7) / 8) {
    return absl::InvalidArgumentError(absl::StrCat(
        "expected ", (values + 7) / 8, " bytes of absent bits, found ", rows.absent().size()));
  }
  for (const uint32_t source : rows.source()) {
    if (source >= sources) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected a source index below ", sources, ", found ", source));
    }
  }
  for (const int64_t step : rows.step()) {
    if (step < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("expected a step of at least 0, found ", step));
    }
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t CountPresent(const v1::SeriesRows& rows) {
  uint64_t absent = 0;
  for (const char byte : rows.absent())
    absent += static_cast<uint64_t>(std::popcount(static_cast<uint8_t>(byte)));
  const auto values = static_cast<uint64_t>(rows.value_size());
  return values - std::min(values, absent);
}

uint64_t CountPresent(const v1::SeriesRows& rows, int row) {
  const auto columns = static_cast<size_t>(rows.value_size() / rows.step_size());
  if (rows.absent().empty()) return columns;
  const SeriesRow view{0, nullptr, reinterpret_cast<const uint8_t*>(rows.absent().data()),
                       static_cast<size_t>(row) * columns};
  uint64_t present = 0;
  for (size_t column = 0; column < columns; ++column) present += view.present(column) ? 1 : 0;
  return present;
}

// Returns those sets of the batch that its stream has declared before.
std::map<uint64_t, SeriesSets::Columns> SeriesSets::DeclaredBefore(const v1::Batch& batch) const {
  std::map<uint64_t, Columns> before;
  const MutexLock lock(mutex_);
  const auto stream = streams_.find(batch.stream_id());
  if (stream == streams_.end()) return before;
  const auto take = [&](uint64_t id) {
    const auto found = stream->second.sets.find(id);
    if (found != stream->second.sets.end()) before.emplace(id, found->second);
  };
  for (const v1::SeriesSet& set : batch.series_sets()) take(set.id());
  for (const v1::SeriesRows& rows : batch.series()) take(rows.set());
  return before;
}

absl::Status SeriesSets::Check(const v1::Batch& batch) const {
  const std::map<uint64_t, Columns> declared_before = DeclaredBefore(batch);
  const auto sites_before = [&](uint64_t id) -> const std::vector<v1::Site>* {
    const auto found = declared_before.find(id);
    return found == declared_before.end() ? nullptr : &found->second->sites;
  };
  std::map<uint64_t, size_t> fresh;  // columns by set id
  for (int i = 0; i < batch.series_sets_size(); ++i) {
    const v1::SeriesSet& set = batch.series_sets(i);
    if (auto s = At("series_sets", i, CheckSeriesSet(set)); !s.ok()) return s;
    const std::vector<v1::Site>* before = sites_before(set.id());
    const bool again = !fresh.emplace(set.id(), set.sites_size()).second;
    if (again || (before != nullptr && !SameSites(*before, set))) {
      return absl::InvalidArgumentError(absl::StrCat("series_sets[", i, "]: ", SetName(set.id()),
                                                     " was declared with other series"));
    }
  }
  for (int i = 0; i < batch.series_size(); ++i) {
    const v1::SeriesRows& rows = batch.series(i);
    const auto declared = fresh.find(rows.set());
    const std::vector<v1::Site>* before = sites_before(rows.set());
    if (declared == fresh.end() && before == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("series[", i, "]: ", SetName(rows.set()),
                                                     " was not declared on this stream"));
    }
    const size_t columns = declared != fresh.end() ? declared->second : before->size();
    const auto sources = static_cast<size_t>(batch.sources_size());
    if (auto s = At("series", i, CheckSeriesRows(rows, columns, sources)); !s.ok()) return s;
  }
  return absl::OkStatus();
}

void SeriesSets::Declare(const v1::Batch& batch) {
  if (batch.series_sets().empty()) return;
  const std::map<uint64_t, Columns> before = DeclaredBefore(batch);
  std::map<uint64_t, Columns> fresh;
  for (const v1::SeriesSet& set : batch.series_sets()) {
    if (before.contains(set.id()) || fresh.contains(set.id())) continue;
    fresh[set.id()] = Intern({set.sites().begin(), set.sites().end()});
  }
  const MutexLock lock(mutex_);
  Stream& stream = streams_[batch.stream_id()];
  stream.sets.merge(fresh);
}

std::shared_ptr<const SeriesColumns> SeriesSets::Find(uint64_t stream_id, uint64_t set) const {
  const MutexLock lock(mutex_);
  const auto stream = streams_.find(stream_id);
  if (stream == streams_.end()) return nullptr;
  const auto found = stream->second.sets.find(set);
  return found == stream->second.sets.end() ? nullptr : found->second;
}

std::shared_ptr<const SeriesColumns> SeriesSets::Single(const v1::Site& site) {
  {
    const MutexLock lock(mutex_);
    const auto known = singles_.find({site.layer(), site.op()});
    if (known != singles_.end()) return known->second;
  }
  Columns single = Intern({site});
  constexpr size_t kMost = 1 << 16;  // beyond it they are made again
  const MutexLock lock(mutex_);
  if (singles_.size() >= kMost) {
    singles_.clear();
    std::erase_if(lists_, [](const auto& list) { return list.second.expired(); });
  }
  return singles_.emplace(std::pair(site.layer(), site.op()), std::move(single)).first->second;
}

std::shared_ptr<const SeriesColumns> SeriesSets::Intern(std::vector<v1::Site> sites) {
  std::string key = KeyOf(sites);
  {
    const MutexLock lock(mutex_);
    const auto known = lists_.find(key);
    if (known != lists_.end()) {
      if (auto list = known->second.lock()) return list;
    }
  }
  auto list = std::make_shared<SeriesColumns>();
  for (uint32_t column = 0; column < sites.size(); ++column) {
    if (read_(sites[column])) list->read.push_back(column);
  }
  list->shown = ShownColumn(sites);
  list->sites = std::move(sites);
  list->key = key;
  const MutexLock lock(mutex_);
  std::weak_ptr<const SeriesColumns>& known = lists_[std::move(key)];
  if (auto other = known.lock()) return other;  // another thread was faster
  known = list;
  return list;
}

bool SeriesSets::NoteRun(uint64_t stream_id, const std::string& run) {
  const MutexLock lock(mutex_);
  return !streams_[stream_id].runs.insert(run).second;
}

void SeriesSets::ForgetStream(uint64_t stream_id) {
  const MutexLock lock(mutex_);
  const auto stream = streams_.find(stream_id);
  if (stream == streams_.end()) return;
  std::vector<Columns> lists;
  for (auto& [id, columns] : stream->second.sets) lists.push_back(std::move(columns));
  streams_.erase(stream);
  // Lists that an open step still uses are freed by Trim.
  for (const Columns& columns : lists) {
    if (columns.use_count() == 1) lists_.erase(columns->key);
  }
}

std::vector<uint64_t> SeriesSets::Streams() const {
  std::vector<uint64_t> ids;
  const MutexLock lock(mutex_);
  for (const auto& [id, stream] : streams_) ids.push_back(id);
  return ids;
}

void SeriesSets::Trim() {
  const MutexLock lock(mutex_);
  singles_.clear();  // made again on demand
  std::erase_if(lists_, [](const auto& list) { return list.second.expired(); });
}

void SeriesColumns::Persist(Archive& archive) { archive(sites); }

void SeriesSets::Persist(Archive& archive) {
  archive(streams_);
  if (!archive.reading()) return;
  for (auto& [id, stream] : streams_) {
    for (auto& [set, list] : stream.sets) {
      if (list == nullptr) archive.Fail("a list of series");
      if (!archive.ok()) return;
      list = Known(*list);
    }
  }
}

void SeriesSets::Clear() {
  const MutexLock lock(mutex_);
  streams_.clear();
  singles_.clear();
  lists_.clear();
}

}  // namespace plumbline::rules
