// Prints the content of a pickle as one line that Python can also write (pickle_test.py), or the
// reason why it is refused. `--damage`: every byte is changed and every length tried, without a
// crash.
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "audit/readers/pickle/machine.h"

namespace {

using namespace plumbline::audit;

std::string Hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

std::string Text(const PickleTree& tree, PickleId id);

std::string Items(const PickleTree& tree, PickleId id, char open, char close) {
  std::string out(1, open);
  for (const PickleId item : tree.items(id)) out += Text(tree, item) + ",";
  return out + close;
}

std::string Call(const PickleTree& tree, PickleId id) {
  const PickleCall& call = tree.call(id);
  std::string out = "call ";
  for (const PickleId part :
       {call.callee, call.arguments, call.keywords, call.state, call.items, call.entries})
    out += (part == kNoPickle ? "-" : Text(tree, part)) + ";";
  return out;
}

std::string Text(const PickleTree& tree, PickleId id) {
  switch (tree.kind(id)) {
    case PickleKind::kNone:
      return "None";
    case PickleKind::kBool:
      return tree.truth(id) ? "True" : "False";
    case PickleKind::kInt:
      return std::to_string(tree.whole(id));
    case PickleKind::kLong:
      return "long:" + Hex(tree.text(id));
    case PickleKind::kReal: {
      char text[32];
      std::snprintf(text, sizeof text, "f:%016llx",
                    static_cast<unsigned long long>(std::bit_cast<uint64_t>(tree.real(id))));
      return text;
    }
    case PickleKind::kText:
      return "t:" + Hex(tree.text(id));
    case PickleKind::kBytes:
      return "b:" + Hex(tree.bytes(id));
    case PickleKind::kList:
      return Items(tree, id, '[', ']');
    case PickleKind::kTuple:
      return Items(tree, id, '(', ')');
    case PickleKind::kDict:
      return Items(tree, id, '{', '}');
    case PickleKind::kSet: {
      std::set<std::string> sorted;
      for (const PickleId item : tree.items(id)) sorted.insert(Text(tree, item));
      std::string out = "<";
      for (const std::string& item : sorted) out += item + ",";
      return out + ">";
    }
    case PickleKind::kGlobal:
      return "g:" + std::string(tree.text(id));
    case PickleKind::kCall:
      return Call(tree, id);
    case PickleKind::kPersistent:
      return "p:" + Items(tree, id, '(', ')');
    case PickleKind::kCircle:
      return "circle:" + std::string(tree.callee(tree.circle(id).call));
    case PickleKind::kRun: {
      const PickleRun& run = tree.run(id);
      return "run:" + std::to_string(run.items) + "/" + std::to_string(run.values) +
             (run.closed ? "/closed" : "/open") + (tree.run_bytes(id).empty() ? "/no bytes" : "");
    }
  }
  return "?";
}

// Parses, and reads all of the result.
bool Try(const std::string& bytes) {
  PickleTree tree;
  if (ParsePickle(bytes, &tree)) return false;
  return !Text(tree, tree.root()).empty();
}

int Damage(const std::string& bytes) {
  uint64_t accepted = 0, tried = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    for (const int bit : {1, 2, 4, 8, 16, 32, 64, 128}) {
      damaged[i] = static_cast<char>(bytes[i] ^ static_cast<char>(bit));
      accepted += Try(damaged) ? 1u : 0u;
      ++tried;
    }
    for (const char odd : {'\x00', '\xff', '.', '(', '\x8a', '\x8d', '\x93', 'R'}) {
      damaged[i] = odd;
      accepted += Try(damaged) ? 1u : 0u;
      ++tried;
    }
    if (Try(bytes.substr(0, i))) {
      std::printf("accepted: a pickle cut at byte %zu\n", i);
      return 1;
    }
  }
  std::printf("%llu tried, %llu accepted\n", static_cast<unsigned long long>(tried),
              static_cast<unsigned long long>(accepted));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bool damage = argc > 2 && std::string(argv[1]) == "--damage";
  if (argc < 2) return 2;
  std::ifstream in(argv[argc - 1], std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  if (damage) return Damage(bytes);
  PickleTree tree;
  size_t used = 0;
  if (const auto problem = ParsePickle(bytes, &tree, &used)) {
    std::printf("refused: byte %llu: %s\n", static_cast<unsigned long long>(problem->offset),
                problem->text.c_str());
    return 1;
  }
  std::printf("%s\n", Text(tree, tree.root()).c_str());
  return used == bytes.size() ? 0 : 3;
}
