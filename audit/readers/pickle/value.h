// The values that a pickle makes, as a graph without circles. Nothing of it is resolved: a global
// is its name, a call is a name with arguments. An object that leads back to itself (a bound method
// of the object that holds it) is cut where it does.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plumbline::audit {

using PickleId = uint32_t;  // of a value, within its tree
inline constexpr PickleId kNoPickle = UINT32_MAX;

enum class PickleKind : uint8_t {
  kNone,
  kBool,
  kInt,   // fits 64 bits
  kLong,  // does not: `bytes` are its two's complement, lowest byte first
  kReal,
  kText,   // UTF-8 as written; what Python wrote may hold lone surrogates
  kBytes,  // bytes, and bytearray as its `variant`
  kList,
  kTuple,
  kSet,         // and frozenset as its `variant`
  kDict,        // a key once, with the last value that it was given
  kGlobal,      // `text` is "module.name", Python 2's modules by their names of today
  kCall,        // what a call of a global would have made
  kPersistent,  // a reference out of the pickle: one item, the id
  kCircle,      // stands for a value that it would lie in, through a call: nothing is in it
  kRun,         // stands for items that were read and not kept; in a dict as key and as value
};

// What a call is made of. An absent part is kNoPickle.
struct PickleCall {
  PickleId callee = kNoPickle;
  PickleId arguments = kNoPickle;  // a tuple
  PickleId keywords = kNoPickle;   // a dict
  PickleId state = kNoPickle;      // what it is given afterwards (__setstate__)
  PickleId items = kNoPickle;      // kList: what is appended to it
  PickleId entries = kNoPickle;    // kDict: what is set in it
};

// What stands in place of references that lead back into the value that they lie in.
struct PickleCircle {
  PickleId call = kNoPickle;  // the one that the circle leads through
  uint64_t count = 0;         // references that were cut
};

// What stands in place of plain values (numbers, texts, containers of them) beyond those that are
// kept.
struct PickleRun {
  uint64_t items = 0;           // of the container; of a dict, keys and values
  uint64_t values = 0;          // with those within the items
  uint32_t begin = 0, end = 0;  // the bytes that made them
  // Do these bytes refer to nothing outside of them? Two such runs of the same bytes are the same
  // values.
  bool closed = false;
};

// Built by ParsePickle. The bytes that were parsed outlive the tree. Not thread-safe while built.
class PickleTree {
 public:
  PickleId root() const { return root_; }
  size_t size() const { return nodes_.size(); }

  PickleKind kind(PickleId id) const { return nodes_[id].kind; }
  bool Is(PickleId id, PickleKind kind) const { return id < size() && nodes_[id].kind == kind; }
  // Where its opcode stands, in bytes from the pickle's first.
  uint64_t offset(PickleId id) const { return nodes_[id].offset; }

  // A bytearray, a frozenset.
  bool variant(PickleId id) const { return nodes_[id].variant; }

  bool truth(PickleId id) const { return nodes_[id].whole != 0; }
  int64_t whole(PickleId id) const { return nodes_[id].whole; }
  double real(PickleId id) const { return nodes_[id].real; }
  // Of texts, globals and longs, and of bytes that are not `latin`.
  std::string_view text(PickleId id) const;
  // Bytes whatever way they are written: protocols 0 to 2 write them as a text of latin-1 letters.
  std::string bytes(PickleId id) const;
  // Items of lists, tuples, sets and persistent ids; of a dict key, value, key, value, ...
  const std::vector<PickleId>& items(PickleId id) const { return items_[nodes_[id].span.at]; }
  const PickleCall& call(PickleId id) const { return calls_[nodes_[id].span.at]; }
  const PickleCircle& circle(PickleId id) const { return circles_[nodes_[id].span.at]; }
  const PickleRun& run(PickleId id) const { return runs_[nodes_[id].span.at]; }
  std::string_view run_bytes(PickleId id) const;
  bool has_runs() const { return !runs_.empty(); }
  // Of a list, a set or a dict (keys and values), those that are not kept counted.
  uint64_t length(PickleId id) const;

  // The name that a call calls; empty when it is none, or calls no global.
  std::string_view callee(PickleId id) const;
  // The value of a key that is this text, kNoPickle: none, or no dict. The last of several.
  PickleId Find(PickleId dict, std::string_view key) const;

 private:
  friend class PickleMachine;
  friend class PickleWalk;
  struct Span {
    uint32_t at, size;
  };
  struct Node {
    PickleKind kind = PickleKind::kNone;
    bool owned = false;  // text: in `owned_`, not in the pickle's bytes
    bool latin = false;  // bytes: written as text
    bool variant = false;
    uint32_t offset = 0;
    union {
      int64_t whole = 0;
      double real;
      Span span;
    };
  };

  std::string_view data_;
  std::string owned_;
  std::vector<Node> nodes_;
  std::vector<std::vector<PickleId>> items_;
  std::vector<PickleCall> calls_;
  std::vector<PickleCircle> circles_;
  std::vector<PickleRun> runs_;
  PickleId root_ = kNoPickle;
};

}  // namespace plumbline::audit
