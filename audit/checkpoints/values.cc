#include "audit/checkpoints/values.h"

#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "audit/checkpoints/value_comparison.h"
#include "audit/checkpoints/value_entries.h"
#include "audit/readers/checkpoint/distributed.h"
#include "audit/readers/checkpoint/torch_values.h"

namespace plumbline::audit {
namespace {

// The files of one rank as one dict: the entries of their outermost dicts.
struct RankValues {
  std::vector<FileValues> files;  // own the roots that the entries point to
  std::vector<ValueEntry> entries;
};

// Collects entries. If a name comes from several files, numbers it.
class EntryList {
 public:
  void Add(ValueEntry entry) {
    const uint32_t again = seen_[entry.key]++;
    if (again > 0) {
      absl::StrAppend(&entry.key, " (", again + 1, ")");
      absl::StrAppend(&entry.name, " (", again + 1, ")");
    }
    entries.push_back(std::move(entry));
  }

  std::vector<ValueEntry> entries;

 private:
  absl::flat_hash_map<std::string, uint32_t> seen_;
};

RankValues OpenRank(std::span<const WholeCheckpoint> ranks, const char* side, Equality* out) {
  RankValues values;
  for (const WholeCheckpoint& rank : ranks) {
    for (const WholeCheckpoint::Part& part : rank.files) {
      FileValues& file = values.files.emplace_back(OpenValues(part.path, *part.file));
      if (!file.wrong.empty())
        out->unread.push_back(
            absl::StrCat("values of ", side, "'s ", part.path, " (", file.wrong, ")"));
    }
  }
  EntryList list;
  for (const FileValues& file : values.files) {
    for (const ValueRoot& root : file.roots) {
      const Value value{&root, root.file->tree().root()};
      if (root.name.empty() && value.tree().Is(value.id, PickleKind::kDict)) {
        for (ValueEntry& entry : EntriesOf(value)) list.Add(std::move(entry));
        if (!RunsOf(value).empty()) {
          out->unread.push_back(absl::StrCat(
              "plain values of ", side, "'s outermost dict, which were counted but not stored"));
        }
      } else {
        list.Add({root.name, root.name.empty() ? "(the file)" : root.name, value});
      }
    }
  }
  values.entries = std::move(list.entries);
  return values;
}

// If only one side has extra parts, sets them aside. If each side has parts that the other lacks,
// neither side contains the other, which is a difference.
void ReportAlone(const Alone& only_a, const Alone& only_b, Equality* out) {
  if (out->conversion || only_a.count == 0 || only_b.count == 0) {
    SetAside("only A contains", only_a, out);
    SetAside("only B contains", only_b, out);
    return;
  }
  const auto emit = [&](const Alone& alone, const char* where) {
    out->unequal.push_back(
        {alone.first, alone.count == 1 ? std::string(where)
                                       : absl::StrCat(where, " (1 of ", alone.count, " values)")});
  };
  emit(only_a, "only in A");
  emit(only_b, "only in B");
}

class SideValues {
 public:
  SideValues(const CheckpointSide& side, const char* name) : side_(side), name_(name) {
    // A distributed checkpoint stores each value once, for any number of parts.
    whole_ = !side.ranks.empty() && !side.ranks[0].files.empty() &&
             IsDistributedPart(side.ranks[0].files[0].path);
  }

  size_t ranks() const { return whole_ ? 1 : side_.ranks.size(); }
  RankValues Open(size_t rank, Equality* out) const {
    const std::span<const WholeCheckpoint> all(side_.ranks);
    return OpenRank(whole_ ? all : all.subspan(rank, 1), name_, out);
  }
  // If the numbers of ranks differ, sets aside values of ranks other than the first that differ.
  absl::Status SetRanksAside(const NamesMap& names, PieceReader* reader, LeftOut* left_out,
                             Equality* out) const {
    Equality within;
    for (size_t rank = 1; rank < ranks(); ++rank) {
      const RankValues first = Open(0, &within), other = Open(rank, &within);
      const std::set<std::string> reported;
      ValueComparison comparison(names, reported, reader, left_out, &within);
      if (absl::Status s = comparison.Compare(first.entries, other.entries); !s.ok()) return s;
    }
    out->unread.insert(out->unread.end(), within.unread.begin(), within.unread.end());
    if (within.unequal.empty()) return absl::OkStatus();
    SetAside(
        absl::StrCat(name_, "'s first rank was compared; its other ranks contain different values"),
        {within.unequal.size(), within.unequal[0].name}, out);
    return absl::OkStatus();
  }

 private:
  const CheckpointSide& side_;
  const char* name_;
  bool whole_ = false;
};

}  // namespace

absl::Status CompareValues(const CheckpointSide& a, const CheckpointSide& b, const NamesMap& names,
                           const std::set<std::string>& reported, PieceReader* reader,
                           LeftOut* left_out, Equality* out) {
  const SideValues of_a(a, "A"), of_b(b, "B");
  const bool paired = of_a.ranks() == of_b.ranks();
  Alone only_a, only_b;
  for (size_t rank = 0; rank < (paired ? of_a.ranks() : 1); ++rank) {
    const size_t before = out->unequal.size();
    const RankValues values_a = of_a.Open(rank, out), values_b = of_b.Open(rank, out);
    ValueComparison comparison(names, reported, reader, left_out, out);
    if (absl::Status s = comparison.Compare(values_a.entries, values_b.entries); !s.ok()) return s;
    for (size_t i = before; rank > 0 && i < out->unequal.size(); ++i)
      absl::StrAppend(&out->unequal[i].text, " (rank ", rank, ")");
    only_a.Add(comparison.only_a);
    only_b.Add(comparison.only_b);
  }
  ReportAlone(only_a, only_b, out);
  if (paired) return absl::OkStatus();
  if (absl::Status s = of_a.SetRanksAside(names, reader, left_out, out); !s.ok()) return s;
  return of_b.SetRanksAside(names, reader, left_out, out);
}

}  // namespace plumbline::audit
