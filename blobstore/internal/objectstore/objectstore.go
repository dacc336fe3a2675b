// Package objectstore holds what the drivers of object stores share: settings,
// connections that cannot hang, messages without secrets, uploads in parts,
// ordered listings, and bulk deletion where the store has none.
package objectstore
