// Which name of A is which name of B (plumb diff --map): TOML with a table of names.
//
//   [names]
//   "layers.*.attention.wq.weight" = "model.layers.*.self_attn.q_proj.weight"
//   "module.*" = "*"
//   "rng_state*" = ""           # left out on both sides
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace plumbline::audit {

class NamesMap {
 public:
  // What B calls A's tensor: by the first pattern that fits, in the order of the file; the same
  // name where none does. Each * of a pattern stands for any text, and takes it over.
  std::string OfB(const std::string& name_of_a) const;
  // The same of "LAYER/op", of which the map names the layer.
  std::string OfB(const std::string& name_of_a, size_t layer_size) const {
    return OfB(name_of_a.substr(0, layer_size)) + name_of_a.substr(layer_size);
  }
  bool empty() const { return patterns_.empty(); }
  // Does it name anything anew? One that only leaves names out does not.
  bool Renames() const;
  // The pattern by which a name is left out: the first that fits it, where nothing stands on its
  // right. nullptr: it is not.
  const std::string* LeavesOut(const std::string& name) const;
  // The patterns that are first to fit for none of these names of A: a mistyped line of the map.
  // Those that leave names out are not told.
  std::vector<std::string> Unfitted(const std::vector<std::string>& names_of_a) const;
  void Add(std::string a, std::string b);
  // Patterns that leave names out, in the order of the file.
  std::vector<std::string> LeavingOut() const;

 private:
  // The first pattern that fits a name, and what its stars stand for; size(): none.
  size_t First(const std::string& name, std::vector<std::string>* stars) const;

  std::vector<std::pair<std::string, std::string>> patterns_;
  bool leaves_out_ = false;
};

// What a map left out: by pattern how many names, and the first.
struct LeftOut {
  struct Names {
    std::string first;
    std::set<std::string> all;
  };
  std::map<std::string, Names> by;

  // True, and counted: the map leaves this name out.
  bool Take(const NamesMap& names, const std::string& name);
};

// InvalidArgument "FILE:LINE: expected ...": no TOML, no table `names`, a value that is no text, or
// more * on the right than on the left.
absl::StatusOr<NamesMap> ReadNamesMap(const std::string& path);

}  // namespace plumbline::audit
