// Maps names of A to names of B (plumb diff --map): TOML with a table of names.
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
  // Returns B's name for a tensor of A: from the first pattern that matches, in the order of the
  // file. If none matches, returns the same name. Each * matches any text and carries it over.
  std::string OfB(const std::string& name_of_a) const;
  // Translates "LAYER/op": only the layer goes through the map.
  std::string OfB(const std::string& name_of_a, size_t layer_size) const {
    return OfB(name_of_a.substr(0, layer_size)) + name_of_a.substr(layer_size);
  }
  bool empty() const { return patterns_.empty(); }
  // Returns true if the map renames a tensor. A map that only leaves names out does not.
  bool Renames() const;
  // Returns the pattern that leaves this name out: the first that matches, if its right side is
  // empty. Otherwise returns nullptr.
  const std::string* LeavesOut(const std::string& name) const;
  // Returns the patterns that are the first match of none of these names of A (mistyped lines).
  // Patterns that leave names out are not returned.
  std::vector<std::string> Unfitted(const std::vector<std::string>& names_of_a) const;
  void Add(std::string a, std::string b);
  // Returns the patterns that leave names out, in the order of the file.
  std::vector<std::string> LeavingOut() const;

 private:
  // Returns the index of the first pattern that matches, and the text of its stars. If none
  // matches, returns size().
  size_t First(const std::string& name, std::vector<std::string>* stars) const;

  std::vector<std::pair<std::string, std::string>> patterns_;
  bool leaves_out_ = false;
};

// The names that a map left out: for each pattern their number, and the first of them.
struct LeftOut {
  struct Names {
    std::string first;
    std::set<std::string> all;
  };
  std::map<std::string, Names> by;

  // If the map leaves this name out, counts it and returns true.
  bool Take(const NamesMap& names, const std::string& name);
};

// Reads a map. Returns InvalidArgument "FILE:LINE: expected ..." if the file is not TOML, has no
// table `names`, a value is not text, or the right side has more * than the left.
absl::StatusOr<NamesMap> ReadNamesMap(const std::string& path);

}  // namespace plumbline::audit
