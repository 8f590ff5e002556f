// The features that the library was built with. CMake rewrites this file for a library that it
// builds, with a line for each feature: SLOTLINE_HAS_CUDA, SLOTLINE_HAS_IMAGE,
// SLOTLINE_HAS_SOURCES, SLOTLINE_HAS_TURBO. For a library built by cargo, define them yourself.
#ifndef SLOTLINE_CONFIG_H
#define SLOTLINE_CONFIG_H

#define SLOTLINE_VERSION "0.1.0"
//@SLOTLINE_FEATURES@

#endif
