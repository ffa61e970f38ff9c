// Which name of A is which name of B (plumb diff --map): TOML with a table of names.
//
//   [names]
//   "layers.*.attention.wq.weight" = "model.layers.*.self_attn.q_proj.weight"
//   "module.*" = "*"
#pragma once

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
  // The patterns that are first to fit for none of these names of A: a mistyped line of the map.
  std::vector<std::string> Unfitted(const std::vector<std::string>& names_of_a) const;
  void Add(std::string a, std::string b) { patterns_.emplace_back(std::move(a), std::move(b)); }

 private:
  std::vector<std::pair<std::string, std::string>> patterns_;
};

// InvalidArgument "FILE:LINE: expected ...": no TOML, no table `names`, a value that is no text, or
// more * on the right than on the left.
absl::StatusOr<NamesMap> ReadNamesMap(const std::string& path);

}  // namespace plumbline::audit
