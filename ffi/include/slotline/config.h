// What was built into the library. CMake writes this file anew for a library that it builds, with a line for each feature:
// SLOTLINE_HAS_CUDA, SLOTLINE_HAS_IMAGE, SLOTLINE_HAS_SOURCES, SLOTLINE_HAS_TURBO. For a library that cargo built, define
// them yourself.
#ifndef SLOTLINE_CONFIG_H
#define SLOTLINE_CONFIG_H

#define SLOTLINE_VERSION "0.1.0"
//@SLOTLINE_FEATURES@

#endif
