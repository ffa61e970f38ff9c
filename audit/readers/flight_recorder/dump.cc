#include "audit/readers/flight_recorder/dump.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "audit/readers/flight_recorder/dump_tree.h"
#include "audit/readers/input/json_cursor.h"

namespace plumbline::audit {
namespace {

constexpr size_t kMostOperations = 1u << 16, kMostGroups = 1u << 16, kMostText = 256;
// Bytes of shapes that are compared: enough for one shape of each of 1,500 ranks.
constexpr size_t kMostPendingText = 1u << 14;
constexpr size_t kMostLongText = 16u << 20;
constexpr uint32_t kMostRank = (1u << 17) - 1;

std::string Cut(std::string_view text) {
  std::string out(text.substr(0, kMostText));
  for (char& c : out) c = static_cast<unsigned char>(c) - 0x20u < 0x5fu ? c : '?';
  return out;
}

// Returns lists of integers in lists as text: "[3,4],[]". A truncated text ends within a bracket.
template <typename Tree>
std::string ShapeText(const Tree& tree, typename Tree::Node sizes, size_t most) {
  std::string text;
  for (const auto& shape : tree.Items(sizes)) {
    text += text.empty() ? "[" : ",[";
    bool first = true;
    for (const auto& extent : tree.Items(shape)) {
      if (!first) text += ",";
      first = false;
      text += std::to_string(tree.Whole(extent).value_or(-1));
      if (text.size() > most) return text;
    }
    text += "]";
  }
  return text;
}

// Reads [0, 4, 8], written as a text or as a list.
template <typename Tree>
std::vector<uint32_t> RanksOf(const Tree& tree, typename Tree::Node node) {
  std::vector<uint32_t> ranks;
  for (const auto& item : tree.Items(node)) {
    const std::optional<int64_t> rank = tree.Whole(item);
    if (rank && *rank >= 0 && *rank <= kMostRank) ranks.push_back(static_cast<uint32_t>(*rank));
  }
  const std::string_view text = tree.Text(node);
  for (size_t at = 0; at < text.size();) {
    uint32_t rank = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), rank);
    if (error != std::errc()) {
      ++at;
      continue;
    }
    if (rank <= kMostRank) ranks.push_back(rank);
    at = static_cast<size_t>(end - text.data());
  }
  return ranks;
}

v1::FlightRecorder::State StateOf(std::string_view state) {
  if (state == "completed") return v1::FlightRecorder::STATE_COMPLETED;
  if (state == "started") return v1::FlightRecorder::STATE_STARTED;
  return v1::FlightRecorder::STATE_SCHEDULED;
}

// Sets the peer from "nccl:send 0->1" or "nccl:recv 1<-0": the number after the arrow.
void SetPeer(std::string_view name, v1::FlightRecorder::Operation* op) {
  size_t arrow = name.find("->");
  if (arrow == name.npos) arrow = name.find("<-");
  if (arrow == name.npos) return;
  uint32_t peer = 0;
  const auto [end, error] =
      std::from_chars(name.data() + arrow + 2, name.data() + name.size(), peer);
  if (error != std::errc() || peer > kMostRank) return;
  op->set_peer_known(true);
  op->set_peer(peer);
}

template <typename Tree>
class DumpFiller {
 public:
  using Node = typename Tree::Node;
  DumpFiller(const Tree& tree, v1::FlightRecorder* out) : tree_(tree), out_(*out) {}

  // Returns false if the tree is not a dump.
  bool Fill(uint64_t* records) {
    const Node root = tree_.root();
    const bool old = tree_.IsList(root);  // before PyTorch 2.3 the dump was only the list of
                                          // entries
    const Node entries = old ? root : tree_.Find(root, "entries");
    if (!tree_.IsList(entries)) return false;
    out_.set_version(Cut(tree_.Text(tree_.Find(root, "version"))));
    for (const auto& [key, config] : tree_.Members(tree_.Find(root, "pg_config")))
      AddConfig(key, config);
    const std::vector<Node> items = tree_.Items(entries);
    *records += items.size();
    const size_t left_out = items.size() - std::min(items.size(), kMostOperations);
    out_.set_left_out(left_out);
    for (size_t i = left_out; i < items.size(); ++i) AddOperation(items[i]);
    for (const auto& [key, status] : tree_.Members(tree_.Find(root, "pg_status")))
      AddStatus(key, status);
    return true;
  }

 private:
  uint32_t GroupNamed(std::string_view name) {
    const std::string cut = Cut(name);
    const auto [known, fresh] = groups_.try_emplace(cut, static_cast<uint32_t>(groups_.size()));
    if (fresh && groups_.size() <= kMostGroups) out_.add_groups()->set_name(cut);
    return std::min(known->second, static_cast<uint32_t>(kMostGroups - 1));
  }

  void AddConfig(std::string_view key, Node config) {
    std::string_view name = tree_.Text(tree_.Find(config, "name"));
    auto& group = *out_.mutable_groups(static_cast<int>(GroupNamed(name.empty() ? key : name)));
    group.set_description(Cut(tree_.Text(tree_.Find(config, "desc"))));
    group.clear_ranks();
    for (const uint32_t rank : RanksOf(tree_, tree_.Find(config, "ranks"))) group.add_ranks(rank);
  }

  void AddOperation(Node entry) {
    const std::string_view name = tree_.Text(tree_.Find(entry, "profiling_name"));
    if (name.empty()) return;
    auto& op = *out_.add_operations();
    op.set_name(Cut(name));
    op.set_state(StateOf(tree_.Text(tree_.Find(entry, "state"))));
    op.set_point_to_point(tree_.Truth(tree_.Find(entry, "is_p2p")));
    SetPeer(name, &op);
    op.set_group(GroupOf(entry));
    op.set_sequence(SequenceOf(entry, op.point_to_point()));
    const bool pending = op.state() != v1::FlightRecorder::STATE_COMPLETED;
    op.set_input_shape(Shapes(tree_.Find(entry, "input_sizes"), pending));
    op.set_output_shape(Shapes(tree_.Find(entry, "output_sizes"), pending));
    const std::vector<Node> dtypes = tree_.Items(tree_.Find(entry, "input_dtypes"));
    if (!dtypes.empty()) op.set_dtype(Cut(tree_.Text(dtypes[0])));
    if (const auto created = tree_.Whole(tree_.Find(entry, "time_created_ns")); created > 0)
      op.set_created_ns(static_cast<uint64_t>(*created));
    op.set_where(Where(tree_.Find(entry, "frames")));
  }

  // Returns the shapes. Long texts are kept only for pending operations, and up to a total size,
  // because a pickle may refer to one list many times.
  std::string Shapes(Node sizes, bool pending) {
    std::string text =
        ShapeText(tree_, sizes, pending && long_text_ > 0 ? kMostPendingText : kMostText);
    if (text.size() > kMostText) long_text_ -= std::min(long_text_, text.size());
    return text;
  }

  uint32_t GroupOf(Node entry) {
    const Node group = tree_.Find(entry, "process_group");
    const std::vector<Node> parts = tree_.Items(group);
    std::string_view name = parts.empty() ? tree_.Text(group) : tree_.Text(parts[0]);
    const std::optional<int64_t> id = tree_.Whole(tree_.Find(entry, "pg_id"));
    const std::string of_id = id ? std::to_string(*id) : "0";
    if (name.empty()) name = of_id;
    const uint32_t index = GroupNamed(name);
    if (id) of_id_[of_id] = index;
    return index;
  }

  uint64_t SequenceOf(Node entry, bool point_to_point) {
    for (const char* key : {point_to_point ? "p2p_seq_id" : "collective_seq_id", "seq_id"}) {
      const std::optional<int64_t> number = tree_.Whole(tree_.Find(entry, key));
      if (number && *number >= 0) return static_cast<uint64_t>(*number);
    }
    return 0;
  }

  // Returns the innermost frame outside of libraries.
  std::string Where(Node frames) {
    for (const auto& frame : tree_.Items(frames)) {
      const std::string_view file = tree_.Text(tree_.Find(frame, "filename"));
      if (file.empty() || file.find("/torch/") != file.npos ||
          file.find("site-packages") != file.npos)
        continue;
      const std::optional<int64_t> line = tree_.Whole(tree_.Find(frame, "line"));
      return Cut(std::string(file.substr(file.rfind('/') + 1)) + ":" +
                 std::to_string(line.value_or(0)) + " in " +
                 std::string(tree_.Text(tree_.Find(frame, "name"))));
    }
    return "";
  }

  // Adds the status of a group. The key is the group's number or name.
  void AddStatus(std::string_view key, Node status) {
    const auto by_id = of_id_.find(std::string(key));
    auto& group = *out_.mutable_groups(
        static_cast<int>(by_id != of_id_.end() ? by_id->second : GroupNamed(key)));
    const auto number = [&](const char* name) { return tree_.Whole(tree_.Find(status, name)); };
    if (const auto n = number("last_enqueued_collective")) group.set_last_enqueued(*n);
    if (const auto n = number("last_started_collective")) group.set_last_started(*n);
    if (const auto n = number("last_completed_collective")) group.set_last_completed(*n);
  }

  const Tree& tree_;
  v1::FlightRecorder& out_;
  size_t long_text_ = kMostLongText;  // bytes that may still be kept
  std::map<std::string, uint32_t> groups_;
  std::map<std::string, uint32_t> of_id_;  // key: number of a group, as text
};

bool IsPickle(std::string_view bytes) {
  return bytes.size() > 2 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5;
}

}  // namespace

std::optional<Problem> ReadFlightDump(std::string_view bytes, v1::FlightRecorder* out,
                                      uint64_t* records) {
  const Problem none{0, "expected a flight recorder's entries, found none", true};
  if (IsPickle(bytes)) {
    PickleTree tree;
    if (auto problem = ParsePickle(bytes, &tree)) return problem;
    if (const auto call = PickleDumpTree::CallIn(tree)) return call;
    const PickleDumpTree dump(&tree);
    if (!DumpFiller<PickleDumpTree>(dump, out).Fill(records)) return none;
    return std::nullopt;
  }
  JsonDumpTree tree;
  if (auto problem = tree.Parse(bytes)) return problem;
  if (!DumpFiller<JsonDumpTree>(tree, out).Fill(records)) return none;
  return std::nullopt;
}

bool LooksLikeFlightDump(std::string_view head) {
  const auto has = [&](std::string_view part) { return head.find(part) != head.npos; };
  const size_t begin = head.find_first_not_of(" \t\r\n");
  if (begin == head.npos) return false;
  const bool json = head[begin] == '{' || head[begin] == '[';
  if (!IsPickle(head) && !json) return false;
  if (json && has("\"traceEvents\"")) return false;
  return has("profiling_name") || (has("entries") && (has("pg_config") || has("pg_status")));
}

}  // namespace plumbline::audit
