// Reads settings of a run from a small file that its logger wrote next to its series.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace plumbline::audit {

// Both add "config: NAME" for each number, text and flag of `name`, a path relative to the folder
// of `file`. If the file is absent, too large or of another form, they add nothing: its series are
// valid without it. YAML is read in the form of W&B and SwanLab: `NAME:` with an indented `value:
// VALUE` below.
void TakeJsonConfig(const std::string& file, std::string_view name,
                    std::map<std::string, std::string>* settings);
void TakeYamlConfig(const std::string& file, std::string_view name,
                    std::map<std::string, std::string>* settings);

}  // namespace plumbline::audit
