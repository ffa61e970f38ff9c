#include "server/store/catalogue.h"

#include <algorithm>

namespace plumbline::server {

uint32_t Catalogue::Run(std::string_view name) {
  if (const uint32_t known = FindRun(name); known != 0) return known;
  LoadRun(newest_run_ + 1, std::string(name));
  fresh_.runs.emplace_back(newest_run_, std::string(name));
  return newest_run_;
}

uint32_t Catalogue::FindRun(std::string_view name) const {
  const auto found = runs_.find(name);
  return found == runs_.end() ? 0 : found->second;
}

uint32_t Catalogue::Series(uint32_t run, v1::Role role, const v1::Site& site) {
  const auto found = series_.find({run, role, site.layer(), site.op()});
  if (found != series_.end()) return found->second->id;
  const SeriesName* entered = Enter({newest_series_ + 1, run, role, site.layer(), site.op()});
  fresh_.series.push_back(*entered);
  return entered->id;
}

namespace {

uint32_t FirstLate(uint32_t rank) { return kLateGeneration | rank << kLateRankShift; }
uint32_t LastLate(uint32_t rank) { return FirstLate(rank) | ((1u << kLateRankShift) - 1); }

}  // namespace

Span* Catalogue::Find(uint32_t run, uint32_t attempt, v1::Role role) {
  return NewestUpTo(run, attempt, role, kLateGeneration - 1);
}

Span* Catalogue::FindLate(uint32_t run, uint32_t attempt, v1::Role role, uint32_t rank) {
  Span* span = NewestUpTo(run, attempt, role, LastLate(rank));
  return span != nullptr && span->generation >= FirstLate(rank) ? span : nullptr;
}

Span* Catalogue::NewestUpTo(uint32_t run, uint32_t attempt, v1::Role role, uint32_t generation) {
  auto after = spans_.upper_bound({run, attempt, role, generation});
  if (after == spans_.begin()) return nullptr;
  Span* span = std::prev(after)->second.get();
  return span->run == run && span->attempt == attempt && span->role == role ? span : nullptr;
}

Span* Catalogue::Find(uint32_t run, uint32_t attempt, v1::Role role, uint32_t generation) {
  const auto found = spans_.find({run, attempt, role, generation});
  return found == spans_.end() ? nullptr : found->second.get();
}

Span* Catalogue::Add(uint32_t run, uint32_t attempt, v1::Role role, bool resumed) {
  const Span* last = Find(run, attempt, role);
  uint32_t next = last == nullptr ? 0 : last->generation + 1;
  if (resumed) next = std::max(next, kResumable) | 1;
  if (!resumed && next > kResumable) next += next % 2;
  return AddGeneration(run, attempt, role, next);
}

Span* Catalogue::AddLate(uint32_t run, uint32_t attempt, v1::Role role, uint32_t rank) {
  if (rank >= uint32_t{1} << (31 - kLateRankShift)) return nullptr;
  const Span* last = FindLate(run, attempt, role, rank);
  if (last != nullptr && last->generation == LastLate(rank)) return nullptr;
  return AddGeneration(run, attempt, role,
                       last == nullptr ? FirstLate(rank) : last->generation + 1);
}

Span* Catalogue::AddGeneration(uint32_t run, uint32_t attempt, v1::Role role, uint32_t generation) {
  Span span;
  span.id = newest_span_ + 1;
  span.run = run;
  span.attempt = attempt;
  span.role = role;
  span.generation = generation;
  LoadSpan(std::move(span));
  return Find(run, attempt, role, generation);
}

std::vector<Span*> Catalogue::SpansOf(uint32_t run) const {
  std::vector<Span*> list;
  for (auto it = spans_.lower_bound({run, 0, 0, 0}); it != spans_.end(); ++it) {
    if (it->second->run != run) break;
    list.push_back(it->second.get());
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const Span* a, const Span* b) { return a->order() < b->order(); });
  return list;
}

std::vector<Span*> Catalogue::Spans() const {
  std::vector<Span*> list;
  for (const auto& [key, span] : spans_) list.push_back(span.get());
  return list;
}

const std::vector<const SeriesName*>& Catalogue::SeriesOf(uint32_t run) const {
  static const std::vector<const SeriesName*> none;
  const auto found = series_of_.find(run);
  return found == series_of_.end() ? none : found->second;
}

void Catalogue::Forget(const std::string& name, uint32_t run) {
  spans_.erase(spans_.lower_bound({run, 0, 0, 0}), spans_.lower_bound({run + 1, 0, 0, 0}));
  series_.erase(series_.lower_bound({run, 0, "", ""}), series_.lower_bound({run + 1, 0, "", ""}));
  series_of_.erase(run);
  runs_.erase(name);
}

NameRows Catalogue::Names() const {
  NameRows rows;
  for (const auto& [name, id] : runs_) rows.runs.emplace_back(id, name);
  for (const auto& [key, series] : series_) rows.series.push_back(*series);
  return rows;
}

void Catalogue::LoadRun(uint32_t id, std::string name) {
  newest_run_ = std::max(newest_run_, id);
  runs_.emplace(std::move(name), id);
}

void Catalogue::LoadSeries(SeriesName series) { Enter(std::move(series)); }

SeriesName* Catalogue::Enter(SeriesName series) {
  newest_series_ = std::max(newest_series_, series.id);
  auto held = std::make_unique<SeriesName>(std::move(series));
  SeriesName* raw = held.get();
  series_of_[raw->run].push_back(raw);
  series_[{raw->run, raw->role, raw->layer, raw->op}] = std::move(held);
  return raw;
}

void Catalogue::LoadSpan(Span span) {
  newest_span_ = std::max(newest_span_, span.id);
  const SpanKey key{span.run, span.attempt, span.role, span.generation};
  spans_[key] = std::make_unique<Span>(std::move(span));
}

}  // namespace plumbline::server
