// Random pickles, each read twice: with space for all plain values, and with space for a few.
// Everything in the second result is also in the first.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "audit/readers/pickle/machine.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/torch_zip.h"

namespace plumbline::audit {
namespace {

PickleLimits Few() {
  PickleLimits limits;
  limits.plain = 6;
  limits.few = 2;
  limits.whole = "params";
  return limits;
}

// Compares two trees. A placeholder for dropped values matches that number of values.
class Adjacent {
 public:
  // `keys_once`: no dict gets a key twice.
  Adjacent(const PickleTree& all, const PickleTree& few, bool keys_once)
      : all_(all), few_(few), keys_once_(keys_once) {}

  bool Fit(PickleId a, PickleId b) {
    if (a == kNoPickle || b == kNoPickle) return a == b;
    if (a >= all_.size() || b >= few_.size() || ++visits_ > kMostVisits)
      return visits_ > kMostVisits;
    if (few_.Is(b, PickleKind::kRun)) return true;  // repeated by the memo
    if (all_.kind(a) != few_.kind(b)) return false;
    switch (all_.kind(a)) {
      case PickleKind::kNone:
      case PickleKind::kRun:
      case PickleKind::kCircle:
        return true;
      case PickleKind::kBool:
      case PickleKind::kInt:
      case PickleKind::kReal:
        return all_.whole(a) == few_.whole(b);
      case PickleKind::kLong:
      case PickleKind::kText:
      case PickleKind::kGlobal:
        return all_.text(a) == few_.text(b);
      case PickleKind::kBytes:
        return all_.bytes(a) == few_.bytes(b);
      case PickleKind::kCall:
        return FitCalls(all_.call(a), few_.call(b));
      default:
        return FitItems(all_.items(a), few_.items(b), all_.Is(a, PickleKind::kDict));
    }
  }

 private:
  static constexpr size_t kMostVisits = 1u << 16;

  bool FitCalls(const PickleCall& a, const PickleCall& b) {
    return Fit(a.callee, b.callee) && Fit(a.arguments, b.arguments) &&
           Fit(a.keywords, b.keywords) && Fit(a.state, b.state) && Fit(a.items, b.items) &&
           Fit(a.entries, b.entries);
  }

  bool FitItems(const std::vector<PickleId>& a, const std::vector<PickleId>& b, bool dict) {
    const auto dropped = [&](PickleId id) { return few_.Is(id, PickleKind::kRun); };
    // The last value of a repeated key may be among the dropped values.
    if (dict && !keys_once_ && std::any_of(b.begin(), b.end(), dropped)) return true;
    size_t at = 0;
    for (size_t i = 0; i < b.size(); ++i) {
      if (at >= a.size()) return false;
      // A value repeated by the memo stands for itself; a run stands for its items.
      if (!few_.Is(b[i], PickleKind::kRun) || !few_.run(b[i]).closed) {
        if (few_.Is(b[i], PickleKind::kRun) && few_.run(b[i]).items > 1)
          return true;  // not distinguished
        if (!Fit(a[at++], b[i])) return false;
        continue;
      }
      at += few_.run(b[i]).items;
      if (dict) {
        if (++i >= b.size() || b[i] != b[i - 1]) return false;
      }
    }
    return at == a.size();
  }

  const PickleTree &all_, &few_;
  const bool keys_once_;
  size_t visits_ = 0;
};

// Opcodes in an order that a pickler might write, and some in an order that no pickler writes.
class Soup {
 public:
  explicit Soup(std::mt19937& random) : random_(random) {}

  std::string Pickle() {
    out_ = "\x80\x02";
    memo_ = 0;
    closed_.clear();
    lists_.clear();
    out_ += ']';
    for (int batch = 0; batch < 3; ++batch) {
      out_ += '(';
      for (uint32_t i = 1 + Draw(4); i > 0; --i) Value(1);
      out_ += 'e';
    }
    return out_ + ".";
  }

 private:
  uint32_t Draw(uint32_t n) { return random_() % n; }

  // Sometimes puts the top value into the memo; returns its place there.
  int Put() {
    if (memo_ >= 250 || Draw(3) != 0) return -1;
    out_ += 'q';
    out_ += static_cast<char>(memo_);
    return memo_++;
  }

  bool Get(const std::vector<int>& places) {
    if (places.empty()) return false;
    out_ += 'h';
    out_ += static_cast<char>(places[Draw(static_cast<uint32_t>(places.size()))]);
    return true;
  }

  // The value is complete: it may be repeated anywhere and does not hold an enclosing value.
  void Close(int place) {
    if (place < 0) return;
    closed_.push_back(place);
    std::erase(lists_, place);
  }

  void Number() { out_ += std::string("K") + static_cast<char>(Draw(5)); }

  void Text() {
    constexpr const char* kTexts[] = {"params", "a", "bc", ""};
    out_ += PickledText(kTexts[Draw(4)]);
    Close(Put());
  }

  void Value(int depth) {
    switch (Draw(depth > 4 ? 4u : 12u)) {
      case 0:
      case 1:
        return Number();
      case 2:
        return Text();
      case 3:
        if (!Get(closed_)) Number();
        return;
      case 4:  // a tuple
        Value(depth + 1);
        Value(depth + 1);
        out_ += '\x86';
        return Close(Put());
      case 5: {  // a call, and its state
        out_ += "cm\nC\n)\x81";
        const int place = Put();
        Value(depth + 1);
        out_ += 'b';
        return Close(place);
      }
      case 6:  // a new value that is put into an enclosing list
        if (!Get(lists_)) return Number();
        out_ += Draw(2) == 0 ? "]" : "K\x09";
        out_ += 'a';
        return;
      case 7:
      case 8:
        return Dict(depth);
      default:
        return List(depth);
    }
  }

  void Dict(int depth) {
    out_ += '}';
    const int place = Put();
    for (uint32_t batch = Draw(4); batch > 0; --batch) {
      out_ += '(';
      for (uint32_t i = Draw(5); i > 0; --i) {
        out_ += "J" + LittleEndian(1000 + next_++, 4);  // no value occurs twice
        Value(depth + 1);
      }
      out_ += 'u';
    }
    Close(place);
  }

  void List(int depth) {
    out_ += ']';
    const int place = Put();
    if (place >= 0) lists_.push_back(place);
    for (uint32_t batch = Draw(5); batch > 0; --batch) {
      out_ += '(';
      for (uint32_t i = Draw(7); i > 0; --i) Value(depth + 1);
      out_ += 'e';
    }
    Close(place);
  }

  std::mt19937& random_;
  std::string out_;
  int memo_ = 0;
  uint32_t next_ = 0;
  std::vector<int> closed_, lists_;  // places in the memo; incomplete lists
};

// Every reachable value has its parts in the tree.
bool IsWhole(const PickleTree& tree) {
  for (PickleId id = 0; id < tree.size(); ++id) {
    switch (tree.kind(id)) {
      case PickleKind::kList:
      case PickleKind::kTuple:
      case PickleKind::kSet:
      case PickleKind::kDict:
      case PickleKind::kPersistent:
        for (const PickleId item : tree.items(id)) {
          if (item >= tree.size()) return false;
        }
        break;
      case PickleKind::kCall: {
        const PickleCall& call = tree.call(id);
        for (const PickleId part :
             {call.callee, call.arguments, call.keywords, call.state, call.items, call.entries}) {
          if (part != kNoPickle && part >= tree.size()) return false;
        }
        break;
      }
      case PickleKind::kText:
      case PickleKind::kGlobal:
        if (tree.text(id).size() > (1u << 20)) return false;
        break;
      case PickleKind::kRun:
        if (tree.run_bytes(id).empty() || tree.run(id).values == 0) return false;
        break;
      default:
        break;
    }
  }
  return tree.root() < tree.size();
}

struct Counts {
  size_t both = 0, runs = 0, refused = 0;
};

void Check(const std::string& pickle, bool undamaged, Counts* counts) {
  PickleTree all, few;
  const auto problem_all = ParsePickle(pickle, &all);
  const auto problem_few = ParsePickle(pickle, &few, nullptr, Few());
  if (problem_few) {
    // Dropped values cannot be changed later.
    if (undamaged && !problem_all) ++counts->refused;
    return;
  }
  EXPECT_TRUE(IsWhole(few)) << testing::PrintToString(pickle);
  if (problem_all) return;  // a circle, or damage, within values that are not kept
  ++counts->both;
  counts->runs += few.has_runs() ? 1 : 0;
  EXPECT_TRUE(Adjacent(all, few, undamaged).Fit(all.root(), few.root()))
      << testing::PrintToString(pickle);
}

TEST(PickleRuns, ReportNothingElse) {
  std::mt19937 random(5);
  Counts counts;
  const FuzzRounds rounds(8000);
  for (int i = 0; rounds.Due(i); ++i) Check(Soup(random).Pickle(), true, &counts);
  EXPECT_GT(counts.both, 1000u);
  EXPECT_GT(counts.runs, 500u);
  EXPECT_LT(counts.refused, counts.both / 10);
}

TEST(PickleRuns, Damaged) {
  using namespace std::string_view_literals;
  std::mt19937 random(6);
  Counts counts;
  const FuzzRounds rounds(8000);
  for (int i = 0; rounds.Due(i); ++i) {
    const std::string pickle = i % 8 == 0 ? ValuesPickle() : Soup(random).Pickle();
    Check(MutateWith(pickle, "\0\xFF\x7F\x80(.tR}]eauQqhlcb01K\x86\x81"sv, random), false, &counts);
  }
  EXPECT_GT(counts.both, 100u);
}

// A long list before a tensor, and the same without it.
TEST(PickleRuns, TensorsNextToThem) {
  std::string list = "](";
  for (int i = 0; i < 300; ++i) list += "K\x05";
  const std::string tensor = PickledTensor("0", 2);
  const std::string pickle = "\x80\x02" +
                             PickledDict({{PickledText("long"), list + "e"},
                                          {PickledText("w"), tensor},
                                          {PickledText("params"), list + "e"}}) +
                             ".";
  PickleTree tree;
  ASSERT_FALSE(ParsePickle(pickle, &tree, nullptr, Few()));
  const PickleId dropped = tree.Find(tree.root(), "long");
  ASSERT_EQ(tree.items(dropped).size(), 1u);
  EXPECT_EQ(tree.length(dropped), 300u);
  EXPECT_EQ(tree.callee(tree.Find(tree.root(), "w")), "torch._utils._rebuild_tensor_v2");
  EXPECT_EQ(tree.items(tree.Find(tree.root(), "params")).size(), 300u);
}

}  // namespace
}  // namespace plumbline::audit
