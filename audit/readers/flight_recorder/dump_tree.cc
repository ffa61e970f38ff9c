#include "audit/readers/flight_recorder/dump_tree.h"

#include "audit/readers/input/json_cursor.h"

namespace plumbline::audit {

std::optional<Problem> PickleDumpTree::CallIn(const PickleTree& tree) {
  for (PickleId id = 0; id < tree.size(); ++id) {
    const PickleKind kind = tree.kind(id);
    if (kind != PickleKind::kGlobal && kind != PickleKind::kCall && kind != PickleKind::kPersistent)
      continue;
    const std::string_view name = kind == PickleKind::kGlobal ? tree.text(id) : tree.callee(id);
    return Problem{tree.offset(id),
                   "expected lists, dicts, numbers and texts, found " +
                       (name.empty() ? std::string("a call") : std::string(name)),
                   true};
  }
  return std::nullopt;
}

bool PickleDumpTree::IsList(Node node) const {
  return tree_.Is(node, PickleKind::kList) || tree_.Is(node, PickleKind::kTuple);
}

std::vector<PickleId> PickleDumpTree::Items(Node node) const {
  return IsList(node) ? tree_.items(node) : std::vector<PickleId>();
}

std::vector<std::pair<std::string_view, PickleId>> PickleDumpTree::Members(Node node) const {
  std::vector<std::pair<std::string_view, PickleId>> out;
  if (!tree_.Is(node, PickleKind::kDict)) return out;
  const std::vector<PickleId>& items = tree_.items(node);
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    if (tree_.Is(items[i], PickleKind::kText)) out.emplace_back(tree_.text(items[i]), items[i + 1]);
  }
  return out;
}

std::string_view PickleDumpTree::Text(Node node) const {
  return tree_.Is(node, PickleKind::kText) ? tree_.text(node) : std::string_view();
}

std::optional<int64_t> PickleDumpTree::Whole(Node node) const {
  if (!tree_.Is(node, PickleKind::kInt)) return std::nullopt;
  return tree_.whole(node);
}

bool PickleDumpTree::Truth(Node node) const {
  return tree_.Is(node, PickleKind::kBool) && tree_.truth(node);
}

std::optional<Problem> JsonDumpTree::Parse(std::string_view bytes) {
  // The cursor checks the text first: it bounds the depth and knows the offset of an error.
  JsonCursor cursor(bytes);
  if (!cursor.Skip() || !cursor.AtEnd()) {
    return Problem{cursor.offset(),
                   std::string("expected ") + cursor.expected() +
                       (cursor.cut() ? ", found the end of the file" : ", found something else"),
                   true};
  }
  root_ = nlohmann::json::parse(bytes.begin(), bytes.end(), nullptr, false);
  if (root_.is_discarded()) return Problem{0, "expected strict JSON, found other content", true};
  return std::nullopt;
}

JsonDumpTree::Node JsonDumpTree::Find(Node node, std::string_view key) const {
  if (node == nullptr || !node->is_object()) return nullptr;
  const auto found = node->find(key);
  return found == node->end() ? nullptr : &*found;
}

std::vector<JsonDumpTree::Node> JsonDumpTree::Items(Node node) const {
  std::vector<Node> out;
  if (!IsList(node)) return out;
  for (const auto& item : *node) out.push_back(&item);
  return out;
}

std::vector<std::pair<std::string_view, JsonDumpTree::Node>> JsonDumpTree::Members(
    Node node) const {
  std::vector<std::pair<std::string_view, Node>> out;
  if (node == nullptr || !node->is_object()) return out;
  for (auto it = node->begin(); it != node->end(); ++it) out.emplace_back(it.key(), &*it);
  return out;
}

std::string_view JsonDumpTree::Text(Node node) const {
  if (node == nullptr || !node->is_string()) return {};
  return node->get_ref<const std::string&>();
}

std::optional<int64_t> JsonDumpTree::Whole(Node node) const {
  if (node == nullptr || !node->is_number_integer()) return std::nullopt;
  return node->get<int64_t>();
}

}  // namespace plumbline::audit
