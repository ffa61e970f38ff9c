// Trees of the values of a dump, from a pickle or from JSON, with the same interface. If a value is
// missing or of another kind, functions return nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "audit/readers/pickle/machine.h"
#include "nlohmann/json.hpp"

namespace plumbline::audit {

class PickleDumpTree {
 public:
  using Node = PickleId;
  // `tree` must outlive the object.
  explicit PickleDumpTree(const PickleTree* tree) : tree_(*tree) {}
  // Returns a problem if the tree holds anything but containers, numbers and texts.
  static std::optional<Problem> CallIn(const PickleTree& tree);

  Node root() const { return tree_.root(); }
  Node Find(Node node, std::string_view key) const { return tree_.Find(node, key); }
  bool IsList(Node node) const;
  // Returns the items of a list or tuple.
  std::vector<Node> Items(Node node) const;
  // Returns the members with text keys.
  std::vector<std::pair<std::string_view, Node>> Members(Node node) const;
  std::string_view Text(Node node) const;
  std::optional<int64_t> Whole(Node node) const;
  bool Truth(Node node) const;

 private:
  const PickleTree& tree_;
};

class JsonDumpTree {
 public:
  using Node = const nlohmann::json*;
  std::optional<Problem> Parse(std::string_view bytes);

  Node root() const { return &root_; }
  Node Find(Node node, std::string_view key) const;
  bool IsList(Node node) const { return node != nullptr && node->is_array(); }
  std::vector<Node> Items(Node node) const;
  std::vector<std::pair<std::string_view, Node>> Members(Node node) const;
  std::string_view Text(Node node) const;
  std::optional<int64_t> Whole(Node node) const;
  bool Truth(Node node) const { return node != nullptr && node->is_boolean() && node->get<bool>(); }

 private:
  nlohmann::json root_;
};

}  // namespace plumbline::audit
