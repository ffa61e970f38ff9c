// Stores and reads a run's state. Open steps are stored as the messages that hold them.
#include <unordered_map>

#include "analysis/frame/frame.h"
#include "rules/engine/run_state.h"

namespace plumbline::rules {
namespace {

// Collects the sources of one open step, each once.
class SourceTable {
 public:
  uint32_t NumberOf(const v1::Source* source) {
    const auto known = by_address_.find(source);
    if (known != by_address_.end()) return known->second;
    const auto [same, fresh] =
        by_content_.try_emplace(source->SerializeAsString(), static_cast<uint32_t>(list_.size()));
    if (fresh) list_.push_back(*source);
    return by_address_[source] = same->second;
  }
  std::vector<v1::Source>& list() { return list_; }

 private:
  std::unordered_map<const v1::Source*, uint32_t> by_address_;
  std::map<std::string, uint32_t> by_content_;
  std::vector<v1::Source> list_;
};

// One row as it is stored: on its own, whatever rows it came with.
struct Row {
  std::shared_ptr<const SeriesColumns> columns;
  uint32_t source = 0;
  int64_t step = 0;
  std::vector<double> values;
  std::vector<bool> absent;  // empty: none is

  void Persist(Archive& a) { a(columns, source, step, values, absent); }
  bool fits(size_t sources) const {
    return columns != nullptr && source < sources && values.size() == columns->sites.size() &&
           (absent.empty() || absent.size() == values.size());
  }
  v1::SeriesRows Message() const {
    v1::SeriesRows rows;
    rows.add_source(source);
    rows.add_step(step);
    rows.mutable_value()->Add(values.begin(), values.end());
    if (absent.empty()) return rows;
    std::string& bits = *rows.mutable_absent();
    bits.resize((absent.size() + 7) / 8);
    for (size_t i = 0; i < absent.size(); ++i) bits[i / 8] |= static_cast<char>(absent[i] << i % 8);
    return rows;
  }
};

}  // namespace

uint32_t RunState::Persist(Archive& archive) {
  // 3: late steps; 4: endings of processes; 6: returns; 7: series; 8: a run that was forgotten
  const uint32_t version = archive.Version(kResumedKept, 3);
  if (!archive.reading()) Summarize();
  archive(summary_, ranks_seen_, declared_, newest_attempt_, closed_for_room_);
  if (version >= kReturnsKept) archive(firsts_, over_, streams_);
  if (version >= kResumedKept) archive(resumed_);
  if (archive.reading()) {
    for (const auto& [site, ranks] : declared_) kept_ranks_ += ranks.size();
    for (const auto& [site, loss] : summary_.losses) kept_ranks_ += loss.ranks.size();
    for (const auto& [cause, late] : summary_.late) kept_ranks_ += late.ranks.size();
  }
  std::vector<GroupKey> keys;
  for (const auto& [key, group] : groups_) keys.push_back(key);
  archive(keys);
  for (const GroupKey& key : keys) {
    if (archive.ok()) PersistGroup(groups_[key], archive);
    if (archive.ok() && version >= 4) archive(groups_[key].endings);
  }
  return version;
}

void RunState::PersistGroup(Group& group, Archive& archive) {
  archive(group.world_size, group.progress, group.closed, group.newest_step);
  PersistSteps(group, group.open, archive);
  std::vector<uint32_t> late;
  for (const auto& [rank, steps] : group.late) late.push_back(rank);
  archive(late);
  for (const uint32_t rank : late) {
    if (archive.ok()) PersistSteps(group, group.late[rank], archive);
  }
}

void RunState::PersistSteps(Group& group, std::map<int64_t, OpenStep>& list, Archive& archive) {
  std::vector<int64_t> steps;
  for (const auto& [step, open] : list) steps.push_back(step);
  archive(steps);
  for (const int64_t step : steps) {
    if (!archive.ok()) return;
    if (archive.reading()) {
      const OpenStep& open = list[step] = ReadOpen(archive);
      group.bytes += open.bytes;
      open_bytes_ += open.bytes;
    } else {
      WriteOpen(list.at(step), archive);
    }
  }
}

void RunState::WriteOpen(const OpenStep& open, Archive& archive) {
  SourceTable table;
  std::vector<uint32_t> numbers;
  for (const Held& held : open.items) numbers.push_back(table.NumberOf(held.source));
  std::vector<Row> rows;
  for (const HeldRow& held : open.rows) {
    const SeriesRow view = held.view();
    const size_t columns = held.columns->sites.size();
    Row& row = rows.emplace_back();
    row.columns = held.columns;
    row.source = table.NumberOf(held.source);
    row.step = held.rows->step(held.row);
    row.values.assign(view.values, view.values + columns);
    if (view.absent == nullptr) continue;
    for (size_t i = 0; i < columns; ++i) row.absent.push_back(!view.present(i));
  }
  uint64_t bytes = open.bytes;
  archive(table.list(), numbers, rows, bytes);
  for (const Held& held : open.items) {
    // Its source index refers to its original batch and is not used again.
    plumbline::Persist(archive, const_cast<v1::Evidence&>(*held.evidence));
  }
}

RunState::OpenStep RunState::ReadOpen(Archive& archive) {
  const auto batch = std::make_shared<v1::Batch>();
  std::vector<v1::Source> sources;
  std::vector<uint32_t> numbers;
  std::vector<Row> rows;
  OpenStep open;
  archive(sources, numbers, rows, open.bytes);
  for (v1::Source& source : sources) *batch->add_sources() = std::move(source);
  for (const uint32_t number : numbers) {
    if (number >= sources.size()) archive.Fail("the number of a source");
    if (!archive.ok()) return {};
    v1::Evidence* evidence = batch->add_evidence();
    plumbline::Persist(archive, *evidence);
    open.items.push_back({batch, &batch->sources(static_cast<int>(number)), evidence});
  }
  for (const Row& row : rows) {
    if (!row.fits(sources.size())) archive.Fail("a row of its columns");
    if (!archive.ok()) return {};
    v1::SeriesRows* message = batch->add_series();
    *message = row.Message();
    open.rows.push_back({batch, message, 0, &batch->sources(static_cast<int>(row.source)),
                         sets_->Known(*row.columns)});
  }
  return open;
}

}  // namespace plumbline::rules
