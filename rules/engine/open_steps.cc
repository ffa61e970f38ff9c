#include "rules/engine/open_steps.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>

namespace plumbline::rules {
namespace {

// Returns the sort key by which a step's evidence is judged, independent of the order of arrival.
auto JudgingOrder(const v1::Source& source, const v1::Evidence& evidence) {
  return std::make_tuple(std::string_view(evidence.site().layer()),
                         std::string_view(evidence.site().op()), source.rank(), evidence.call());
}

// Returns the bytes that a parsed batch takes while it is held. It is computed from the content
// only, so that it is the same on every host and after every restart. Evidence, rows and sites take
// more than their bytes on the wire.
uint64_t BytesHeld(const v1::Batch& batch) {
  constexpr uint64_t kBatch = 1024, kEvidence = 400, kRow = 96, kEntry = 128;
  uint64_t rows = 0, sites = 0;
  for (const v1::SeriesRows& r : batch.series()) rows += static_cast<uint64_t>(r.step_size());
  for (const v1::SeriesSet& set : batch.series_sets())
    sites += static_cast<uint64_t>(set.sites_size());
  const auto entries =
      static_cast<uint64_t>(batch.sources_size()) + static_cast<uint64_t>(batch.progress_size()) +
      static_cast<uint64_t>(batch.losses_size()) +
      static_cast<uint64_t>(batch.declarations_size()) + static_cast<uint64_t>(batch.series_size());
  return kBatch + batch.ByteSizeLong() + kEvidence * static_cast<uint64_t>(batch.evidence_size()) +
         kRow * rows + kEntry * (entries + sites);
}

void ReadRows(const std::vector<HeldRow>& rows, std::vector<HeldItem>* items,
              std::deque<v1::Evidence>* made) {
  size_t used = 0;
  for (const HeldRow& held : rows) {
    const SeriesRow row = held.view();
    for (const uint32_t column : held.columns->read) {
      if (!row.present(column)) continue;
      v1::Evidence& evidence = used < made->size() ? (*made)[used] : made->emplace_back();
      ++used;
      const v1::Site& site = held.columns->sites[column];
      if (evidence.site().op() != site.op() || evidence.site().layer() != site.layer())
        *evidence.mutable_site() = site;
      evidence.set_step(held.rows->step(held.row));
      evidence.mutable_scalar()->set_value(row.values[column]);
      evidence.set_sample_size(1);
      items->push_back({held.batch, held.source, &evidence, true});
    }
  }
}

// ---- as it is stored ---------------------------------------------------------------------------

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

// One row as it is stored: separate from the rows with which it came.
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

void WriteOpen(const OpenStep& open, Archive& archive) {
  SourceTable table;
  std::vector<uint32_t> numbers;
  for (const HeldItem& held : open.items) numbers.push_back(table.NumberOf(held.source));
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
  for (const HeldItem& held : open.items) {
    // Its source index refers to its original batch and is not used again.
    plumbline::Persist(archive, const_cast<v1::Evidence&>(*held.evidence));
  }
}

OpenStep ReadOpen(SeriesSets* sets, Archive& archive) {
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
                         sets->Known(*row.columns)});
  }
  return open;
}

}  // namespace

SeriesRow ViewOf(const v1::SeriesRows& rows, int row, uint32_t rank, size_t columns) {
  const size_t first = static_cast<size_t>(row) * columns;
  const std::string& absent = rows.absent();
  return {rank, rows.value().data() + first,
          absent.empty() ? nullptr : reinterpret_cast<const uint8_t*>(absent.data()), first};
}

SeriesRow HeldRow::view() const {
  return ViewOf(*rows, row, source->rank(), columns->sites.size());
}

std::vector<HeldItem> ItemsInOrder(const OpenStep& open, std::deque<v1::Evidence>* made) {
  std::vector<HeldItem> held = open.items;
  ReadRows(open.rows, &held, made);
  const auto before = [](const HeldItem& a, const HeldItem& b) {
    return JudgingOrder(*a.source, *a.evidence) < JudgingOrder(*b.source, *b.evidence);
  };
  // Readers usually give columns in this order, and a sort would allocate memory even so.
  if (!std::is_sorted(held.begin(), held.end(), before))
    std::stable_sort(held.begin(), held.end(), before);
  return held;
}

// ---- open steps --------------------------------------------------------------------------------

OpenStep& OpenSteps::At(Group& group, int64_t step) {
  const auto [newest, fresh] = held_until_.try_emplace(&group, step);
  if (!fresh) newest->second = std::max(newest->second, step);
  // Steps usually arrive in order.
  if (!group.open.empty() && group.open.rbegin()->first >= step) return group.open[step];
  if (spare_.empty()) return group.open.emplace_hint(group.open.end(), step, OpenStep())->second;
  Steps::node_type node = std::move(spare_.back());
  spare_.pop_back();
  node.key() = step;
  return group.open.insert(group.open.end(), std::move(node))->second;
}

OpenStep& OpenSteps::LateAt(Group& group, uint32_t rank, int64_t step) {
  const auto [newest, fresh] = late_until_.try_emplace({&group, rank}, step);
  if (!fresh) newest->second = std::max(newest->second, step);
  Touch(group, rank);
  return group.late[rank][step];
}

void OpenSteps::Charge(const v1::Batch& batch) {
  if (held_until_.empty() && late_until_.empty()) return;
  const uint64_t bytes = BytesHeld(batch);
  const auto charge = [&](Group* group, OpenStep& step) {
    step.bytes += bytes;
    group->bytes += bytes;
    bytes_ += bytes;
  };
  for (const auto& [group, step] : held_until_) charge(group, group->open.at(step));
  for (const auto& [of, step] : late_until_)
    charge(of.first, of.first->late.at(of.second).at(step));
  held_until_.clear();
  late_until_.clear();
}

std::vector<uint32_t> OpenSteps::Touched(Group& group) const {
  std::vector<uint32_t> ranks;
  for (auto at = touched_.lower_bound({&group, 0}); at != touched_.end() && at->first == &group;
       ++at)
    ranks.push_back(at->second);
  return ranks;
}

OpenSteps::Steps::node_type OpenSteps::TakeOldest(Group& group) {
  Steps::node_type node = group.open.extract(group.open.begin());
  group.bytes -= node.mapped().bytes;
  bytes_ -= node.mapped().bytes;
  return node;
}

OpenStep OpenSteps::Take(Group& group, Steps* of, Steps::iterator step) {
  OpenStep open = std::move(step->second);
  of->erase(step);
  group.bytes -= open.bytes;
  bytes_ -= open.bytes;
  return open;
}

// There are millions of steps, and most are as small as the previous step.
void OpenSteps::Reuse(Steps::node_type node) {
  constexpr size_t kSmall = 8;
  OpenStep& open = node.mapped();
  if (spare_.size() >= most_spare_ || open.items.capacity() > kSmall ||
      open.rows.capacity() > kSmall)
    return;
  open.items.clear();
  open.rows.clear();
  open.bytes = 0;
  spare_.push_back(std::move(node));
}

void OpenSteps::Persist(Group& group, SeriesSets* sets, Archive& archive) {
  PersistSteps(group, &group.open, sets, archive);
  std::vector<uint32_t> late;
  for (const auto& [rank, steps] : group.late) late.push_back(rank);
  archive(late);
  for (const uint32_t rank : late) {
    if (archive.ok()) PersistSteps(group, &group.late[rank], sets, archive);
  }
}

void OpenSteps::PersistSteps(Group& group, Steps* list, SeriesSets* sets, Archive& archive) {
  std::vector<int64_t> steps;
  for (const auto& [step, open] : *list) steps.push_back(step);
  archive(steps);
  for (const int64_t step : steps) {
    if (!archive.ok()) return;
    if (archive.reading()) {
      const OpenStep& open = (*list)[step] = ReadOpen(sets, archive);
      group.bytes += open.bytes;
      bytes_ += open.bytes;
    } else {
      WriteOpen(list->at(step), archive);
    }
  }
}

}  // namespace plumbline::rules
