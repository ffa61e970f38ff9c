// A finding as JSON for the page, equal from plumbd and in an HTML report. Strings are valid UTF-8
// but otherwise unchanged; the page escapes them. Thread-safe.
#pragma once

#include <limits>
#include <nlohmann/json.hpp>

#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

using Json = nlohmann::ordered_json;

inline constexpr int kMostElements =
    2048;  // of a list in a witness or in details; the page shows the limit

// Returns integers without a fraction. If the value is not finite, returns the text "nan", "inf" or
// "-inf".
Json NumberJson(double value);
// Returns the fields by key, because a protobuf map has no order. Cuts lists after `most` elements.
Json StructJson(const google::protobuf::Struct& fields, int most = std::numeric_limits<int>::max());

// Returns the finding of the report (plumbline.report/1), with bounded lists and its ranks as text.
Json PageFinding(const v1::Finding& finding);
// Returns a row of a list: rule, level, strength, titles, act, command, where, steps.
Json PageRow(const v1::Finding& finding);
// Returns the commands to copy: [{label, command}], with `fill` if there are placeholders in
// capitals.
Json FixesJson(const v1::Finding& finding);

}  // namespace plumbline::rules
