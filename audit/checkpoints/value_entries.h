// Values of a checkpoint's pickles by their place ("optimizer.param_groups.0.lr").
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
  // Is it a tensor that is compared by its name?
  bool named() const { return root->named.contains(id); }
};

struct ValueEntry {
  std::string key;   // as ValueKey has it
  std::string name;  // for people
  Value value;
};

// Of a dict, in its order, but what was not kept of it.
std::vector<ValueEntry> EntriesOf(const Value& dict);

// "optimizer" and "lr" are "optimizer.lr"; at most 512 bytes.
std::string PlaceUnder(const std::string& place, const std::string& name);

// What one side alone tells.
struct Alone {
  uint64_t count = 0;
  std::string first;

  void Add(const Alone& more);
};

// "not compared: WHOSE 3 values (first, ...)", where there are any.
void SetAside(const std::string& whose, const Alone& alone, Equality* out);

// The runs of plain values that were not kept (PickleRun) of a container of one value each, in its
// order.
std::vector<PickleId> RunsOf(const Value& container);

// Are these runs made of the same bytes, which are the same values?
bool AreSameRuns(const Value& a, const Value& b);

// Counts what lies below values, each of them once.
class ValueCounter {
 public:
  ValueCounter(const NamesMap& names, LeftOut* left_out) : names_(names), left_out_(*left_out) {}

  // Values that no named tensor stands for. A list of scalars is one; None is none.
  void Count(const Value& value, const std::string& place, Alone* alone);

 private:
  void CountCall(const Value& value, const std::string& place, Alone* alone);

  const NamesMap& names_;
  LeftOut& left_out_;
  absl::flat_hash_set<std::pair<const ValueRoot*, PickleId>> seen_;
};

// Does a named tensor lie in it? Looks at at most `*visits` values, and counts them off.
bool HasNamed(const Value& value, size_t* visits);

}  // namespace plumbline::audit
