#include "agent/core/sites/site_table.h"

#include <algorithm>
#include <functional>

#include "base/printable.h"
#include "base/relaxed.h"

namespace plumbline::agent {
namespace {

size_t HashOf(SiteKind kind, std::string_view layer, std::string_view op) {
  const std::hash<std::string_view> hash;
  return (hash(op) * 31 + hash(layer)) * 31 + static_cast<size_t>(kind);
}

// Returns the last `most` bytes, from the beginning of a character on.
std::string EndOf(std::string_view text, size_t most) {
  text.remove_prefix(text.size() - std::min(text.size(), most));
  while (!text.empty() && (text.front() & 0xC0) == 0x80) text.remove_prefix(1);
  return ValidUtf8(text);
}

bool Is(const Site& site, SiteKind kind, std::string_view layer, std::string_view op) {
  return site.kind == kind && site.op == op && site.layer == layer;
}

}  // namespace

const char* SiteKindName(SiteKind kind) {
  switch (kind) {
#define PLUMB_KIND(Name, NAME, name, number, op) \
  case SiteKind::k##Name:                        \
    return #name;
#include "proto/evidence_kinds.inc"
    case SiteKind::kScalar:
      return "scalar";
    case SiteKind::kSpan:
      return "span";
  }
  return "?";
}

bool MeasuredKind(int32_t number_of_c, SiteKind* kind) {
  switch (number_of_c) {
#define PLUMB_KIND(Name, NAME, name, number, op) \
  case number:                                   \
    *kind = SiteKind::k##Name;                   \
    return true;
#include "proto/evidence_kinds.inc"
    default:
      return false;
  }
}

uint32_t CallNumbers::NextCalls(int64_t step, uint32_t n) {
  constexpr uint64_t kCallMask = (uint64_t{1} << kBits) - 1;
  const uint64_t base = static_cast<uint64_t>(step) << kBits;
  uint64_t seen = calls_.load(kRelaxed);
  uint64_t next = 0;
  do {
    const bool same = (seen & ~kCallMask) == base && seen != 0;
    next = (same ? seen : base) + n;  // calls so far, including these
  } while (!calls_.compare_exchange_weak(seen, next, kRelaxed));
  return static_cast<uint32_t>((next & kCallMask) - n);
}

void Site::NoteBytes(uint64_t sample_bytes, uint64_t summary_bytes) {
  sample_bytes_.fetch_add(sample_bytes, kRelaxed);
  summary_bytes_.fetch_add(summary_bytes, kRelaxed);
}

void Site::EndStep() {
  most_sample_bytes_.store(std::max(most_sample_bytes(), sample_bytes_.exchange(0, kRelaxed)),
                           kRelaxed);
  most_summary_bytes_ = std::max(most_summary_bytes_, summary_bytes_.exchange(0, kRelaxed));
}

Site* SiteTable::Find(SiteKind kind, std::string_view layer, std::string_view op,
                      size_t* slot) const {
  size_t i = HashOf(kind, layer, op) % kSlots;
  for (;;) {
    Site* site = slots_[i].load(std::memory_order_acquire);
    if (site == nullptr) {
      *slot = i;
      return nullptr;
    }
    if (Is(*site, kind, layer, op)) return site;
    i = (i + 1) % kSlots;
  }
}

Site* SiteTable::FindOrAdd(SiteKind kind, std::string_view layer, std::string_view op, int64_t step,
                           const SourceLine& at) {
  size_t slot = 0;
  if (Site* site = Find(kind, layer, op, &slot)) return site;
  if (layer.size() > kMaxName || op.size() > kMaxName) return nullptr;

  const MutexLock lock(adding_);
  if (Site* site = Find(kind, layer, op, &slot)) return site;  // another thread added it first
  const size_t index = count_.load(kRelaxed);
  if (index == kMaxSites) return nullptr;
  sites_[index] = std::make_unique<Site>();
  Site* site = sites_[index].get();
  site->kind = kind;
  site->layer = layer;
  site->op = op;
  site->declared_step = step;
  site->file = EndOf(at.file, kMaxFile);
  site->line = at.line;
  count_.store(index + 1, std::memory_order_release);
  slots_[slot].store(site, std::memory_order_release);
  return site;
}

}  // namespace plumbline::agent
