// Lists the values of a checkpoint's pickles by their place ("optimizer.param_groups.0.lr").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "audit/checkpoints/equality.h"
#include "audit/checkpoints/names_map.h"
#include "audit/readers/checkpoint/torch_values.h"

namespace plumbline::audit {

struct Value {
  const ValueRoot* root = nullptr;
  PickleId id = kNoPickle;

  const TorchFile& file() const { return *root->file; }
  const PickleTree& tree() const { return root->file->tree(); }
  // Returns true if this is a tensor that is compared by its name.
  bool named() const { return root->named.contains(id); }
};

struct ValueEntry {
  std::string key;   // the text of ValueKey
  std::string name;  // for display
  Value value;
};

// Returns the entries of a dict in its order, without values that were not kept.
std::vector<ValueEntry> EntriesOf(const Value& dict);

// Joins "optimizer" and "lr" to "optimizer.lr", of at most 512 bytes.
std::string PlaceUnder(const std::string& place, const std::string& name);

// Values that only one side has.
struct Alone {
  uint64_t count = 0;
  std::string first;

  void Add(const Alone& more);
};

// If there are values, adds the text "not compared: WHOSE 3 values (first, ...)".
void SetAside(const std::string& whose, const Alone& alone, Equality* out);

// Returns the runs of plain values that were not kept (PickleRun) of a container of one value each,
// in its order.
std::vector<PickleId> RunsOf(const Value& container);

// Returns true if these runs consist of the same bytes, and therefore of the same values.
bool AreSameRuns(const Value& a, const Value& b);

// Counts the values below a value, each once.
class ValueCounter {
 public:
  ValueCounter(const NamesMap& names, LeftOut* left_out) : names_(names), left_out_(*left_out) {}

  // Counts values that belong to no named tensor. A list of scalars counts as one; None counts as
  // zero.
  void Count(const Value& value, const std::string& place, Alone* alone);

 private:
  void CountCall(const Value& value, const std::string& place, Alone* alone);

  const NamesMap& names_;
  LeftOut& left_out_;
  absl::flat_hash_set<std::pair<const ValueRoot*, PickleId>> seen_;
};

// Returns true if the value contains a named tensor. Visits at most `*visits` values, and subtracts
// them from it.
bool HasNamed(const Value& value, size_t* visits);

}  // namespace plumbline::audit
